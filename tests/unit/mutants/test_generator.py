"""Which changes a rule makes of a source, and how they are drawn."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.mutants import generator, mutant
from tests.mutants.generator import Change, Source

WHERE = "lib/loss.py"


def results(text: str, *, executed: set[int] | None = None) -> dict[str, str]:
    """What each change makes of a source, to the rule that made it."""
    source = Source(text)
    lines = executed if executed is not None else set(range(1, text.count("\n") + 2))
    return {
        text[: each.begin] + each.replace + text[each.end :]: each.rule for each in generator.changes(source, lines)
    }


@pytest.mark.parametrize(
    ("text", "changed", "rule"),
    [
        ("a = b < c\n", "a = b >= c\n", "flip"),
        ("a = b - c\n", "a = b + c\n", "flip"),
        ("a = b or c\n", "a = b and c\n", "flip"),
        ("if a:\n    b()\n", "if (not (a)):\n    b()\n", "flip"),
        ("f(a=True)\n", "f(a=False)\n", "flip"),
        ("a = b[1]\n", "a = b[2]\n", "off-by-one"),
        ("a = b[1:c]\n", "a = b[(1) + 1:c]\n", "shift"),
        ("a = b[1:c]\n", "a = b[1:(c) + 1]\n", "shift"),
        ("f(a, b)\n", "f(b, a)\n", "swap"),
        ("loss += a\n", "pass\n", "drop"),
        ("a = a.view(b)\n", "pass\n", "drop"),
        ("grad.zero_()\n", "pass\n", "drop"),
        ("x = 'ä', b > c\n", "x = 'ä', b <= c\n", "flip"),  # Python counts bytes
    ],
)
def test_a_rule_makes_a_change(text: str, changed: str, rule: str) -> None:
    assert results(text)[changed] == rule


@pytest.mark.parametrize("text", ["isinstance(a, b)\n", "f(*a, b)\n", "a = 'x' + b\n", "a = b\n", "print(a)\n"])
def test_what_would_fail_at_once_or_changes_nothing_is_left_alone(text: str) -> None:
    assert results(text) == {}


def test_only_what_is_executed_is_changed() -> None:
    assert set(results("a = b < c\nd = e < f\n", executed={2})) == {"a = b < c\nd = e >= f\n"}


def test_a_place_is_made_unique_by_the_lines_above_it() -> None:
    text = "def f():\n    return a < b\ndef g():\n    return a < b\n"
    source = Source(text)
    change = next(generator.changes(source, {4}))
    unique = generator.found_once(source, change)
    assert unique is not None
    assert text.count(unique[0]) == 1 and text.replace(*unique) == f"{text[:-4]}>= b\n"
    same = "a < b\n" * 20
    assert generator.found_once(Source(same), next(generator.changes(Source(same), {15}))) is None


def test_no_file_and_no_rule_fills_the_draw() -> None:
    candidates = {
        ("long", "flip"): [Change(number, number, "", "flip") for number in range(100)],
        ("short", "drop"): [Change(0, 0, "", "drop")],
        ("short", "flip"): [Change(1, 1, "", "flip")],
    }
    drawn = generator.draw(candidates, 6, 1, lambda *_: True)
    assert [sum(file == name for file, _ in drawn) for name in ("long", "short")] == [4, 2]
    assert (
        drawn == generator.draw(candidates, 6, 1, lambda *_: True) != generator.draw(candidates, 6, 2, lambda *_: True)
    )
    assert generator.draw(candidates, 6, 1, lambda file, _: file == "short") == [
        pair for pair in drawn if pair[0] == "short"
    ]


def test_the_list_is_one_that_can_be_run(tmp_path: Path) -> None:
    text = "def loss(a, b):\n    total = a - b\n\n    if total < 0:\n        total += 1\n    return total[1:]\n"
    (tmp_path / "lib").mkdir()
    (tmp_path / WHERE).write_text(text)
    (tmp_path / "executed.json").write_text(json.dumps({WHERE: [2, 4, 5, 6]}))
    argv = [str(tmp_path / "executed.json"), "--site-packages", str(tmp_path), "--number", "99"]
    answer = CliRunner().invoke(generator.app, argv)
    assert answer.exit_code == 0, answer.output
    (tmp_path / "list.toml").write_text(answer.stdout)
    listed = mutant.load(tmp_path / "list.toml", "list.toml")
    assert {entry.file for entry in listed} == {"loss.py"} and len(listed) >= 5
    for entry in listed:
        assert text.count(entry.find) == 1
        compile(text.replace(entry.find, entry.replace), WHERE, "exec")
    assert tomllib.loads(answer.stdout)["mutant"][0]["package"] == "lib"
