"""What a fleet says of a unit that is not certified: what happened, the usual cause, the next step, and its log."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from builder.fleet import unit
from builder.fleet.unit import Outcome, Unit
from tests.conftest import ROOT, TINY, Small
from tests.unit.conftest import Command

UNIT = Unit(TINY, "host")
FAILED = '{"error": {"what": "WHAT", "cause": "the node is full", "next": "df -h .vetted", "exit_code": 6}}'


def test_the_error_of_a_unit_keeps_its_cause_and_its_next_step() -> None:
    done = subprocess.CompletedProcess([], 6, FAILED.replace("WHAT", "no space left"), "")
    assert unit._statement(done) == (b"", "no space left\nusual cause: the node is full\nnext: df -h .vetted")


@pytest.mark.parametrize("lines", [1, 20])
def test_both_are_printed_however_much_was_said_before_them(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    what = "\\n".join(f"line {number}" for number in range(lines))
    error = unit._statement(subprocess.CompletedProcess([], 6, FAILED.replace("WHAT", what), ""))[1]
    monkeypatch.setattr(unit, "run", lambda *_: Outcome(UNIT, "n1", 1.0, error=error))
    answer = command(small.root, "fleet", TINY, "--on", "local")
    assert answer.code == 1
    printed = answer.out.splitlines()
    assert printed[1] == "  line 0" and len(printed) < 11
    assert printed[-3:-1] == ["  usual cause: the node is full", "  next: df -h .vetted"]


def test_a_folder_without_a_statement_is_not_named(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "run", lambda *_: Outcome(UNIT, "n1", 1.0, error="no"))
    answer = command(small.root, "fleet", TINY, "--on", "local")
    assert answer.out.splitlines()[-1] == "0 of 1 certified"
    statement = small.issue().read_bytes()
    monkeypatch.setattr(unit, "run", lambda *_: Outcome(UNIT, "n1", 1.0, statement.replace(b"PASSED", b"FAILED")))
    answer = command(small.root, "fleet", TINY, "--on", "local")
    assert answer.out.splitlines()[-1] == "0 of 1 certified; statements in .vetted/fleet/statements"


def test_the_log_of_a_certified_unit_is_not_named(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = small.root / "of-the-unit.log"
    log.write_text("said")
    statement = small.issue().read_bytes()
    monkeypatch.setattr(unit, "run", lambda *_: Outcome(UNIT, "n1", 1.0, statement, log=str(log)))
    answer = command(small.root, "fleet", TINY, "--on", "local")
    assert "1 of 1 certified" in answer.out and log.name not in answer.out


def test_what_the_command_of_a_red_unit_printed_is_in_a_log_that_is_named(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    real = unit.run

    def stale(*arguments: Any) -> Outcome:
        small.edit("stack.toml", "tiny-lib==1.0", "tiny-lib==9.0")  # after the command has looked
        return real(*arguments)

    monkeypatch.setattr(unit, "run", stale)
    answer = command(small.root, "fleet", TINY, "--on", "local")
    assert answer.code == 1
    log = f".vetted/fleet/logs/{TINY}-host.log"
    assert f"  log: {log}" in answer.out.splitlines()
    assert f"  next: vetted lock {TINY}" in answer.out.splitlines()
    assert f'"next": "vetted lock {TINY}"' in (small.root / log).read_text()


def test_on_slurm_the_log_of_the_job_has_it(
    small: Small, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    small.edit("stack.toml", "tiny-lib==1.0", "tiny-lib==9.0")
    outcome = unit.run(str(small.root), UNIT)
    assert f"next: vetted lock {TINY}" in outcome.error
    assert f'"next": "vetted lock {TINY}"' in capfd.readouterr().err


def test_the_log_grows_while_the_unit_runs(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    log = small.root / "logs" / "tiny.log"
    says(
        monkeypatch,
        "import pathlib, time\n"
        "print('probing', file=sys.stderr, flush=True)\n"
        f"log = pathlib.Path({str(log)!r})\n"
        "for _ in range(200):\n"
        "    if seen := log.is_file() and 'probing' in log.read_text():\n"
        "        break\n"
        "    time.sleep(0.05)\n"
        "print('seen' if seen else 'not seen')",
    )
    unit.run(str(small.root), UNIT, log=str(log))
    assert log.read_text() == "probing\nseen\n\n"


def says(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Let a unit's command be this program."""
    monkeypatch.setattr(unit, "_command", lambda _: [sys.executable, "-c", f"import sys\n{program}"])


def test_what_would_command_a_terminal_is_not_in_a_log(
    small: Small, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    says(monkeypatch, "print('first\\n\\x1b[31mred', file=sys.stderr)")
    log = small.root / "logs" / "tiny.log"
    unit.run(str(small.root), UNIT)
    unit.run(str(small.root), UNIT, log=str(log))
    for said in (capfd.readouterr().err, log.read_text()):
        assert said.startswith("first\n") and "red" in said and "\x1b" not in said
