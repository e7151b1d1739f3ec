"""Command lines that are not understood: what they say, to people and to programs."""

from __future__ import annotations

import pytest

from builder.commands import usage
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

NOT_UNDERSTOOD = [
    (["lits"], "No such command 'lits'; did you mean list?", "vetted --help"),
    (["zzz"], "No such command 'zzz'", "vetted --help"),
    (["list", "--gpu"], "No such option: --gpu; did you mean --gpus?", "vetted list --help"),
    (["list", "--zzz"], "No such option: --zzz", "vetted list --help"),
    (["list", TINY], f"Got unexpected extra argument(s) ({TINY})", "vetted list --help"),
    (["show"], "Missing argument 'STACK'.", "vetted show --help"),
    (["verify"], "Missing argument 'REF'.", "vetted verify --help"),
    (
        ["certify", TINY, "--engine", "dockr"],
        "Invalid value for '--engine': 'dockr' is not one of 'docker', 'host'.",
        "vetted certify --help",
    ),
    (["bisect", "pakages"], "No such command 'pakages'. Did you mean 'packages'?", "vetted bisect --help"),
    (
        ["list", "--stacks", "mine"],
        "No such option: --stacks; it goes before the command: vetted --stacks DIR COMMAND",
        "vetted list --help",
    ),
    (["bundle", TINY, "--output", "b", "--image"], "Invalid value for --image: ", "vetted bundle --help"),
]


@pytest.mark.parametrize(("argv", "said", "step"), NOT_UNDERSTOOD)
def test_a_command_line_that_is_not_understood_says_what_is_nearest(
    command: Command, small: Small, argv: list[str], said: str, step: str
) -> None:
    answer = command(small.root, *argv)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Usage: vetted") and f"Error: {said}" in answer.err
    answer = command(small.root, *argv, "--json")
    assert (answer.code, answer.err) == (2, "")
    error = answer.json["error"]
    assert error["what"].startswith(said)
    assert (error["cause"], error["next"], error["exit_code"]) == ("", step, 2)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--json", "list"], "it goes behind the command: vetted COMMAND --json"),
        (["bisect", "--json"], "it goes behind the command: vetted bisect COMMAND --json"),
    ],
)
def test_json_in_the_wrong_place_is_sent_to_the_right_one(
    command: Command, small: Small, argv: list[str], said: str
) -> None:
    answer = command(small.root, *argv)
    assert (answer.code, answer.err) == (2, "")
    assert said in answer.json["error"]["what"]


def test_what_another_program_is_asked_for_is_no_wish_for_json() -> None:
    assert usage.wants_json(["vetted", "list", "--json"])
    assert not usage.wants_json(["vetted", "bisect", "packages", "--", "train", "--json"])
    assert not usage.wants_json(["vetted"])


def test_an_error_of_a_bisection_of_another_programs_json_is_for_people(command: Command, small: Small) -> None:
    answer = command(small.root, "bisect", "packages", "--good", "nope", "--bad", TINY, "--", "train", "--json")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("vetted: ")


def test_without_a_command_there_is_help(command: Command, small: Small) -> None:
    answer = command(small.root)
    assert answer.code == 2
    assert "Usage: vetted" in answer.err and "certify" in answer.err
