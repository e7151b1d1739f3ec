"""The command line: what is not understood or not there, answers for people and for programs, and no traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commands import EVERYTHING, spawn, vetted
from tests.conftest import ROOT, TINY, Small
from tests.unit.conftest import Command


@pytest.mark.parametrize(
    "argv",
    [
        ["no-such-command"],
        ["list", "--no-such-option"],
        ["show"],
        ["certify", TINY, "--engine", "podman"],
        ["certify", TINY, "--device", "tpu"],
        ["build", TINY, "another"],
    ],
)
def test_a_command_that_is_not_understood_ends_with_2(command: Command, small: Small, argv: list[str]) -> None:
    answer = command(small.root, *argv)
    assert answer.code == 2
    assert "Usage: vetted" in answer.err
    assert answer.out == ""


def test_a_command_of_its_own_process_that_is_not_understood_ends_with_2(small: Small) -> None:
    answer = vetted(small.root, "no-such-command")
    assert (answer.code, answer.out) == (2, "")
    assert "no-such-command" in answer.err


@pytest.mark.parametrize(
    "name",
    ["list", "lock", "render", "build", "certify", "show", "outdated", "recertify", "bisect packages", "bisect config"],
)
def test_every_command_explains_itself(command: Command, small: Small, name: str) -> None:
    answer = command(small.root, *name.split(), "--help")
    assert answer.code == 0
    assert f"Usage: vetted {name}" in answer.out
    assert "--json" in answer.out


@pytest.mark.parametrize(
    "argv",
    [
        ["lock", "nope"],
        ["render", "nope"],
        ["build", "nope"],
        ["certify", "nope"],
        ["show", "../nope"],
        ["outdated", "nope"],
        ["recertify", "nope", "--engine", "host"],
    ],
)
def test_a_stack_that_is_not_there_ends_with_3_for_people_and_programs(
    command: Command, small: Small, argv: list[str]
) -> None:
    answer = command(small.root, *argv)
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("vetted: ") and "nope" in answer.err
    assert "\nnext: vetted list\n" in answer.err
    answer = command(small.root, *argv, "--json")
    assert (answer.code, answer.err) == (3, "")
    error = answer.json["error"]
    assert set(error) == {"what", "cause", "next", "exit_code"}
    assert (error["exit_code"], error["next"]) == (3, "vetted list")
    assert "nope" in error["what"]


def test_outside_of_a_project_every_command_ends_with_3(command: Command, tmp_path: Path) -> None:
    for argv in (["list"], ["lock"], ["render"], ["show", TINY]):
        answer = command(tmp_path, *argv)
        assert answer.code == 3
        assert "is not inside a Vetted project" in answer.err


def test_a_project_without_stacks_ends_with_3(command: Command, small: Small) -> None:
    small.file("stack.toml").unlink()
    answer = command(small.root, "render")
    assert answer.code == 3
    assert "the project has no stack" in answer.err


def test_a_state_that_cannot_be_written_ends_with_6(
    command: Command, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VETTED_STATE", str(small.file("stack.toml") / "state"))
    answer = command(small.root, "render", "--check")
    assert answer.code == 6
    assert "stack.toml" in answer.err


def test_the_tool_imports_nothing_that_a_bundle_leaves_behind(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "builder", tmp_path / "builder", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"{EVERYTHING}; assert cli.__file__.startswith(__import__('os').getcwd()), cli.__file__"
    with spawn(["-c", code], tmp_path, PYTHONPATH=str(tmp_path)) as child:
        _, stderr = child.communicate()
    assert child.returncode == 0, stderr
