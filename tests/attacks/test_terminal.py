"""Attacks on the terminal: texts that command it, hide what they say, or fill it."""

from __future__ import annotations

import ast
import io
import json
import os
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from builder import console
from builder.base import errors
from builder.certify.certificate import Measurement, ProbeResult
from builder.console import terminal
from builder.image.buildx import BuildStep
from tests.attacks.letters import CLIPBOARD, HOSTILE, harmless
from tests.commands import vetted
from tests.conftest import ROOT, TINY, Small


def printed(renderable: object, *, terminal: bool = False) -> str:
    stream = io.StringIO()
    console.Console(file=stream, width=200, force_terminal=terminal, color_system=None).print(renderable)
    return stream.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_text_that_commands_the_terminal(terminal: bool) -> None:
    """Escape sequences, markup and emoji codes are printed in a line, a style, a table and assembled text."""
    table = Table()
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    for renderable in (HOSTILE, Text(HOSTILE, "red"), Text.assemble((HOSTILE, "bold"), HOSTILE), table):
        output = printed(renderable, terminal=terminal)
        assert harmless(output)
        assert "[/x] [red]" in output
        assert "[[override]] :skull:" in output


def test_progress_lines_that_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A progress line shows names of steps and probes, which come from a build's log and a suite."""
    stream = io.StringIO()
    shown = console.Console(file=stream, width=200, force_terminal=True, color_system=None)
    monkeypatch.setattr(terminal, "err", shown)
    with console.Working(HOSTILE) as work:
        work.step(BuildStep(1, 2, HOSTILE))
        work.progress.refresh()
        work.event({"event": "start", "probes": ["a"]})
        work.event({"event": "begin", "probe": HOSTILE})
        work.progress.refresh()
        work.event({"event": "end", "probe": HOSTILE, "outcome": HOSTILE})
    with console.spinner(HOSTILE):
        pass
    output = stream.getvalue()
    assert "[red]" in output
    assert CLIPBOARD not in output
    assert not set("\x9b\u202e\u200b\x07") & set(output)


def test_a_reason_that_looks_like_our_own_words() -> None:
    """A probe's reason has a second line `certified:`."""
    probe = ProbeResult(
        name="alpha", outcome="failed", reason="bad\ncertified: tiny\rcertified: tiny", log_tail=CLIPBOARD
    )
    lines = [line for reason in console.reasons([probe], {}, []) for line in reason.plain.splitlines()]
    assert lines[0] == "alpha: failed: bad"
    assert not any(line.startswith("certified") for line in lines)
    assert all(map(harmless, lines))


def test_a_result_of_ten_megabytes() -> None:
    """Names, units and reasons of a result are as long as a book."""
    long = "x" * 10_000_000
    number = Measurement(name=long, value=long, unit=long, ok=False, headline=True, why=long, bound={"equals": long})
    probe = ProbeResult(name=long, outcome="failed", reason=long, measurements=[number], matters=long, log_tail=long)
    assert len(printed(console.results_table([probe]))) < 20_000
    assert sum(len(reason.plain) for reason in console.reasons([probe], {}, [])) < 20_000


def test_an_error_that_quotes_a_tools_escape_sequences(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool's output, quoted in an error, contains commands to the terminal."""
    console.note(f"vetted: {errors.from_tool('the step', HOSTILE)}")
    assert harmless(capsys.readouterr().err)


@pytest.mark.parametrize("command", [["list"], ["show", TINY], ["render"], ["render", "--check"], ["certify", TINY]])
def test_a_certificate_full_of_escape_sequences(small: Small, command: list[str]) -> None:
    """Every text of a certificate commands the terminal and breaks Rich's markup."""
    bad = HOSTILE.replace("\ud800", "")
    number = Measurement(name=bad, value=bad, unit=bad, bound={"equals": bad}, why=bad, ok=False, headline=True)
    probes = [
        ProbeResult(
            name=f"{bad}{outcome}", outcome=outcome, reason=bad, matters=bad, measurements=[number], log_tail=bad
        )
        for outcome in ("passed", "failed", "not-run")
    ]
    path = small.issue(probes=probes)
    document = json.loads(path.read_text())
    document["subject"][0]["name"] = bad
    for resource in document["predicate"]["configuration"]:
        resource["annotations"] = dict.fromkeys(resource.get("annotations") or {}, bad)
    path.write_text(json.dumps(document))
    answer = vetted(small.root, *command)
    assert harmless(answer.out + answer.err)
    assert answer.code in (0, 1, 3, 4, 5)
    assert answer.out + answer.err


def test_a_title_that_is_markup(small: Small) -> None:
    """`[/x]` in a title once ended `list` with a traceback."""
    small.edit("stack.toml", '"Tiny"', '"[/x] [bold] [link=https://evil.example]x"')
    small.issue()
    answer = vetted(small.root, "show", TINY)
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "[/x] [bold] [link=https://evil.example]x"


@pytest.mark.parametrize("character", ["\u202e", "\u2066", "\u200b", "\x1b", "\x9b", "\x7f", "\u2028"])
def test_a_title_that_hides_what_it_says(small: Small, character: str) -> None:
    """A title or a reason reverses the reading direction, or contains invisible characters."""
    escaped = f"\\u{ord(character):04x}"
    small.edit("stack.toml", '"Tiny"', f'"Tiny{escaped}"')
    small.edit("stack.toml", '"it greets nobody"', f'"it{escaped}"')
    answer = vetted(small.root, "list")
    assert answer.code == 3
    assert "`title`: must be one line of printable text" in answer.err


def test_what_nobody_foresaw(small: Small, tmp_path: Path) -> None:
    """A bug in Vetted itself shows no traceback, but saves one."""
    (tmp_path / "sitecustomize.py").write_text(
        "from builder.intent import stack\n\n"
        "def names(project):\n    raise ZeroDivisionError('\\x1b[31m')\n\n"
        "stack.names = names\n"
    )
    answer = vetted(small.root, "list", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}", TMPDIR=str(tmp_path))
    assert answer.code == 1
    assert "ZeroDivisionError" in answer.err
    assert harmless(answer.err)
    kept = next(tmp_path.glob("vetted-*.txt"))
    assert str(kept) in answer.err
    assert "Traceback" in kept.read_text()


def test_a_terminal_without_the_letters(small: Small) -> None:
    """A certificate's bound is shown on a terminal that supports only ASCII."""
    probe = ProbeResult(
        name="alpha",
        outcome="passed",
        measurements=[Measurement(name="x", value=1, bound={"at_most": 2}, headline=True)],
    )
    small.issue(probes=[probe])
    answer = vetted(small.root, "show", TINY, PYTHONIOENCODING="ascii")
    assert answer.code == 0
    assert "\\u2264 2" in answer.out


# Who may write to the terminal without the console: JSON, which escapes; scripts that run elsewhere; and a line with a
# name that was checked.
EXEMPT = {
    "base/project.py", "bisect/scripts/reproduce.py", "bundle/scripts/host_distributions.py",
    "bundle/scripts/installed_distributions.py", "bundle/unbundle/stop.py", "bundle/unbundle/work.py",
    "commands/common.py", "commands/doctor.py", "console/terminal.py", "image/patches.py",
    # The fleet's manifest, of this project's own files and the user's own options, and what a pod prints: JSON.
    "commands/kube.py", "fleet/scripts/pod.py",
    "fleet/unit.py",  # into the log of a job, what is printable
}  # fmt: skip


def test_a_command_that_prints_past_the_console() -> None:
    """New code uses print, echo or Rich's own console."""
    modules = set()
    for path in sorted((ROOT / "builder").rglob("*.py")):
        name = str(path.relative_to(ROOT / "builder"))
        for node in ast.walk(ast.parse(path.read_text())):
            called = isinstance(node, ast.Call) and ast.unparse(node.func)
            imported = isinstance(node, ast.ImportFrom) and node.module in ("rich.console", "rich.markup", "rich")
            if called in ("print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write") or imported:
                modules.add(name)
    assert modules <= EXEMPT
