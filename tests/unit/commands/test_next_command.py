"""The next command is printed as the user's shell has it."""

from __future__ import annotations

import pytest

from builder import console
from builder.console.terminal import typed
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("./vetted", "no image\nnext: vetted certify x", "no image\nnext: ./vetted certify x"),
        ("./vetted", "  next: git fetch; vetted lock x", "  next: git fetch; ./vetted lock x"),
        ("/my clone/vetted", "next: vetted use", "next: '/my clone/vetted' use"),
        (
            "./vetted",
            "next: install gh, or vetted watch without --open",
            "next: install gh, or ./vetted watch without --open",
        ),
        ("./vetted", "next: lock again: `vetted lock x`", "next: lock again: `./vetted lock x`"),
        ("./vetted", "next: the file that `vetted train` takes", "next: the file that `vetted train` takes"),
        ("./vetted", "next: pip install vetted", "next: pip install vetted"),
        ("./vetted", "vetted: no\nusual cause: vetted lock", "vetted: no\nusual cause: vetted lock"),
        ("./vetted", "next: registry.example.org/team/vetted use", "next: registry.example.org/team/vetted use"),
        ("./nox", "next: vetted use", "next: vetted use"),
        ("", "next: vetted use", "next: vetted use"),
    ],
)
def test_only_commands_after_next_are_changed(
    monkeypatch: pytest.MonkeyPatch, command: str, message: str, expected: str
) -> None:
    monkeypatch.setenv("VETTED_COMMAND", command)
    assert typed(message) == expected


def test_answers_and_errors_are_printed_so(
    monkeypatch: pytest.MonkeyPatch, small: Small, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VETTED_COMMAND", "./vetted")
    answer = command(small.root, "use", TINY)
    assert f"next: ./vetted certify {TINY} --engine docker" in answer.err
    as_json = command(small.root, "use", TINY, "--json")
    assert as_json.json["error"]["next"] == f"vetted certify {TINY} --engine docker"  # for programs
    console.out.print("next: vetted show")
    assert capsys.readouterr().out == "next: ./vetted show\n"
