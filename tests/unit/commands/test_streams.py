"""Streams that are closed, full or no longer read, and interruptions before a command has begun: no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import spawn
from tests.conftest import ROOT, Small

ANSWERS = [["list"], ["list", "--json"], ["list", "--help"], ["--version"]]


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A line for bash, in which $VETTED is the command."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VETTED": f"{sys.executable} -m builder"}
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize("argv", ANSWERS)
def test_without_stdout_the_exit_code_is_the_answer(small: Small, argv: list[str]) -> None:
    done = shell(f"$VETTED {' '.join(argv)} >&-", small.root)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_any_stream_the_exit_code_is_the_answer(small: Small) -> None:
    assert shell("$VETTED list <&- >&- 2>&-", small.root).returncode == 0
    assert shell("$VETTED show nope <&- >&- 2>&-", small.root).returncode == 3


def test_a_file_that_is_opened_does_not_become_the_closed_stdout(small: Small) -> None:
    """With stdout closed, the next file would get its number, and the answer would be in it."""
    before = small.file("stack.toml").read_text()
    assert shell("$VETTED show nope --json >&-; $VETTED render >&-", small.root).returncode == 0
    assert small.file("stack.toml").read_text() == before
    assert not [path for path in small.root.rglob("*.lock") if path.stat().st_size]


@pytest.mark.parametrize("argv", [*ANSWERS, ["show", "nope", "--json"], ["lits", "--json"]])
def test_an_answer_for_which_there_is_no_room_ends_with_6(small: Small, argv: list[str]) -> None:
    done = shell(f"$VETTED {' '.join(argv)} >/dev/full", small.root)
    assert done.returncode == 6
    assert done.stderr.splitlines() == [
        "vetted: the answer could not be written to stdout: No space left on device",
        "usual cause: the disk that stdout goes to is full",
        "next: df -h; free some space, then run this again",
    ]


@pytest.mark.parametrize("argv", [*ANSWERS, ["show", "nope", "--json"], ["lits", "--json"]])
def test_an_answer_that_nobody_reads_ends_with_141_and_without_a_word(small: Small, argv: list[str]) -> None:
    done = shell(f"exec 9> >(exec true); wait $!; $VETTED {' '.join(argv)} >&9", small.root)
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


def test_what_is_said_beside_the_answer_may_be_lost(small: Small) -> None:
    for stderr in ("2>/dev/full", "2>&-"):
        done = shell(f"$VETTED show nope {stderr}", small.root)
        assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
        done = shell(f"$VETTED lits {stderr}", small.root)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


INTERRUPTED = """\
import os, runpy, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Finder())
sys.argv = ["vetted", "list"]
runpy.run_module("builder", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["typer", "builder.base.errors", "builder.commands.listing"])
def test_an_interruption_during_the_imports_ends_with_130_and_without_a_word(small: Small, module: str) -> None:
    with spawn(["-c", INTERRUPTED.format(module=module, signal="SIGINT")], small.root) as child:
        out, err = child.communicate()
    assert (child.returncode, out, err) == (130, "", "")


def test_a_request_to_end_is_obeyed_without_a_word(small: Small) -> None:
    with spawn(["-c", INTERRUPTED.format(module="builder.commands.listing", signal="SIGTERM")], small.root) as child:
        out, err = child.communicate()
    assert (child.returncode, out, err) == (-signal.SIGTERM, "", "")  # 143 for a shell


def test_who_ignores_interruptions_is_not_interrupted(small: Small) -> None:
    """A shell starts what runs in the background so."""
    program = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{INTERRUPTED}"
    with spawn(["-c", program.format(module="typer", signal="SIGINT")], small.root) as child:
        out, err = child.communicate()
    assert (child.returncode, err) == (0, "")
    assert "not certified" in out
