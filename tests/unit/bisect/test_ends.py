"""The ends of a bisection: stacks, controls, files of pins and requirements."""

from __future__ import annotations

import pytest

from tests.conftest import TINY, make_wheel
from tests.unit.bisect.conftest import BAD, Parts, condition, names


def test_a_file_of_pins_may_be_moved_as_well(parts: Parts) -> None:
    parts.wheel("part-e", BAD, ["part-f>=2"])
    parts.breaks('has("e")')
    result = parts.ask("--bad", "part-e==2.0")
    assert (names(result["culprits"]), names(result["along"]), result["changes"]) == (["part-e"], ["part-f"], 2)


def test_the_bad_end_may_be_a_requirement_that_a_stack_is_moved_to(parts: Parts) -> None:
    make_wheel(parts.small.wheelhouse, "tiny-lib", "2.0", {"tiny_lib.py": "first = 1\n"}, ["part-a"])
    parts.suite("import importlib.metadata\n" + condition('importlib.metadata.version("tiny-lib") == "2.0"'))
    answer = parts.command(
        parts.small.root, "bisect", "packages", "--good", TINY, "--bad", "tiny-lib==2.0", "--probe", "works", "--json"
    )
    assert answer.code == 0, answer.err
    assert names(answer.json["culprits"]) == ["tiny-lib"]
    assert names(answer.json["along"]) == ["part-a"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--good", "nope", "there is no stack nope"),
        ("--good", "nope.txt", "there is no file nope.txt"),
        ("--bad", "./nope", "there is no file ./nope"),
        ("--bad", "controls/nope", "there is no control nope"),
        ("--bad", "part-a==", "nor a requirement"),
        ("--bad", "README.md", "not a pinned distribution"),
        ("--bad", "good.txt", "have the same distributions"),
    ],
)
def test_ends_that_cannot_be_read_end_with_3(parts: Parts, option: str, value: str, message: str) -> None:
    parts.breaks("True")
    assert message in parts.ask(option, value, code=3)["error"]["what"]
