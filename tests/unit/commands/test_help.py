"""Help: every command has an example that works, the version says what runs, and shells complete commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperCommand, TyperGroup

from builder import __version__, cli
from builder.commands import version
from tests.commands import vetted
from tests.conftest import ROOT, Small
from tests.unit.conftest import Command


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where each command is in the tree of commands."""
    context: Any = None
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        elif command and not command.hidden:
            yield (*path, name)


def every_command() -> list[tuple[str, ...]]:
    program = typer.main.get_command(cli.app)
    assert isinstance(program, TyperGroup)
    return list(commands(program))


@pytest.fixture
def invoked(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The commands that were invoked: parsed as ever, and not run."""
    names: list[str | None] = []
    monkeypatch.setattr(TyperCommand, "invoke", lambda self, _: names.append(self.name))
    return names


def test_the_commands_are_those_of_the_help(command: Command, small: Small) -> None:
    shown = [line for line in command(small.root, "--help").out.partition("Commands:\n")[2].splitlines() if line]
    assert [line.split()[0] for line in shown] == list(cli.COMMANDS)
    assert not [line for line in shown if line.endswith("...")], "what each does fits into its line"


@pytest.mark.parametrize("path", every_command(), ids="-".join)
def test_the_help_of_a_command_has_an_example_that_parses(
    command: Command, small: Small, path: tuple[str, ...], invoked: list[str | None]
) -> None:
    shown = command(small.root, *path, "--help").out
    (example,) = shown.partition("Example:\n")[2].strip().splitlines()
    program, *argv = shlex.split(example)
    assert (program, *argv)[: 1 + len(path)] == ("vetted", *path)
    assert command(small.root, *argv).code == 0
    assert invoked == [path[-1]]


@pytest.mark.parametrize("argv", [["lock", "--no-such-option"], ["bisect", "packages", "--good", "x"]])
def test_an_example_that_does_not_parse_is_noticed(
    command: Command, small: Small, argv: list[str], invoked: list[Any]
) -> None:
    assert command(small.root, *argv).code == 2
    assert invoked == []


def test_the_version_says_how_it_was_installed(command: Command, small: Small) -> None:
    answer = command(small.root, "--version")
    assert (answer.code, answer.err) == (0, "")
    (line,) = answer.out.splitlines()
    assert line.startswith(f"vetted {__version__}, a clone in {ROOT}, ")


def test_the_version_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "__file__", str(tmp_path / "site-packages" / "builder" / "commands" / "version.py"))
    assert version.line().startswith(f"vetted {__version__}, installed")
    assert version.line().endswith(f"in {tmp_path / 'site-packages'}")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(small: Small, shell: str) -> None:
    request = {
        "COMP_WORDS": "vetted cert", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "vetted cert",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }  # fmt: skip
    answer = vetted(small.root, _VETTED_COMPLETE=f"complete_{shell}", **request)
    assert "certify" in answer.out
    assert "Traceback" not in answer.err
