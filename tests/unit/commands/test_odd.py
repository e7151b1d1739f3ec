"""Odd command lines: empty, too long, twice, of another time, and not of letters."""

from __future__ import annotations

import datetime
import json
import math
import os

import pytest

from builder import console
from builder.certify import certificate
from tests.conftest import TINY, Small
from tests.unit.conftest import Command

IMAGE = "registry.example/team/vetted:tiny"


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["show", ""], "an argument"),
        (["--stacks", "", "list"], "the value of --stacks"),
        (["show", TINY, "--certificate", ""], "the value of --certificate"),
        (["certify", TINY, "--engine", "host", "--key", ""], "the value of --key"),  # it would not have signed
        (["certify", TINY, "--engine", "host", "--probe="], "the value of --probe"),
        (["use", TINY, "--registry", ""], "the value of --registry"),  # it would have taken the image of this machine
        (["site", "--output", ""], "the value of --output"),  # it would have been written here
        (["bake", "--prepare", "--cache", ""], "the value of --cache"),
        (["verify", IMAGE, "--policy", ""], "the value of --policy"),
        (["doctor", "--python", ""], "the value of --python"),  # it would have been another one
    ],
)
def test_what_is_empty_is_not_taken_for_nothing(command: Command, small: Small, argv: list[str], what: str) -> None:
    answer = command(small.root, *argv)
    assert (answer.code, answer.out) == (2, "")
    assert f"Error: {what} is empty: is a variable of the shell not set?\n" in answer.err


def test_the_command_of_a_bisection_may_have_empty_arguments(command: Command, small: Small) -> None:
    answer = command(small.root, "bisect", "packages", "--good", "nope", "--bad", TINY, "--", "train", "")
    assert (answer.code, answer.out) == (3, "")
    assert "there is no stack nope" in answer.err


@pytest.mark.parametrize("length", [101, 5000])
def test_a_name_that_is_too_long_is_none_and_is_not_repeated(command: Command, small: Small, length: int) -> None:
    (small.root / "mine.txt").write_text("tiny-lib\n")
    for argv in (["show", "b" * length], ["extend", TINY, "mine.txt", "--name", "b" * length]):
        answer = command(small.root, *argv)
        assert (answer.code, answer.out) == (3, "")
        assert "is not a stack's name: lower-case letters, digits and . + _ - only, at most 100" in answer.err
        assert len(answer.err) < 300


def test_a_path_that_is_too_long_is_not_repeated(command: Command, small: Small) -> None:
    answer = command(small.root, "verify", "b" * 5000, "--offline", "--rebuild")
    assert (answer.code, answer.out) == (6, "")
    assert "File name too long" in answer.err and len(answer.err) < 300


def test_a_stack_that_is_named_twice_is_one(command: Command, small: Small) -> None:
    small.project.dockerfile(TINY).write_text("stale")  # so nothing is fetched
    answer = command(small.root, "bake", TINY, TINY, "--prepare")
    assert answer.code == 1
    assert answer.err.startswith("vetted: ") and answer.err.endswith("next: vetted render tiny\n")
    assert list(command(small.root, "render", TINY, TINY, "--json").json) == ["changed"]


@pytest.mark.parametrize("day", ["9999-12-31", "0001-01-01", "2019-12-31"])
def test_a_day_that_no_index_can_be_asked_for_is_refused(command: Command, small: Small, day: str) -> None:
    answer = command(small.root, "watch", "--dry-run", "--as-of", day)
    assert answer.code == 2
    assert "Invalid value for --as-of: a day from 2020-01-01 to today" in answer.err


def test_tomorrow_is_no_day_that_has_been(command: Command, small: Small) -> None:
    tomorrow = certificate.today() + datetime.timedelta(days=1)
    assert command(small.root, "watch", "--dry-run", "--as-of", str(tomorrow)).code == 2


@pytest.mark.parametrize("options", [["--config", "pipe"], ["--config", "my.yaml", "--model-config", "pipe"]])
def test_a_pipe_is_not_waited_for(command: Command, small: Small, options: list[str]) -> None:
    (small.root / "my.yaml").write_text("learning_rate: 1.0e-6\n")
    os.mkfifo(small.root / "pipe")
    answer = command(small.root, "certify", TINY, "--engine", "host", *options)
    assert (answer.code, answer.out) == (3, "")
    assert "vetted: pipe is not a file\n" in answer.err


def test_a_package_that_is_not_there_is_named_beside_all(command: Command, small: Small) -> None:
    answer = command(small.root, "lock", TINY, "--upgrade", "all", "--upgrade", "nope")
    assert (answer.code, answer.out) == (3, "")
    assert "nope" in answer.err and "next: vetted outdated tiny" in answer.err


def test_a_misspelt_certificate_gets_the_nearest_one(command: Command, small: Small) -> None:
    small.issue()
    answer = command(small.root, "show", TINY, "--certificate", "cpu-hots")
    assert answer.code == 1
    assert answer.out == "tiny has no certificate cpu-hots; did you mean cpu-host?\nnext: vetted show tiny\n"


def test_an_answer_in_json_is_json_for_every_program(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"a\udcff": ["\ud83d\ude00 is a face", math.nan, -math.inf, 1.5, True, None], "b": ("€",)})
    printed = capsys.readouterr().out

    def refused(constant: str) -> None:
        raise AssertionError(constant)

    value = json.loads(printed, parse_constant=refused)
    assert value == {"a\ufffd": ["😀 is a face", "nan", "-inf", 1.5, True, None], "b": ["€"]}
    json.dumps(value, ensure_ascii=False).encode()  # no half of a pair is left
