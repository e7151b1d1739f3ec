"""bisect packages, on tiny distributions: every outcome, few runs, and a result that is minimal by test."""

from __future__ import annotations

import pytest

from tests.unit.bisect.conftest import BAD, GOOD, NAMES, Parts, condition, names, verdicts

pytestmark = pytest.mark.engine  # each of them installs a dozen environments


def test_one_culprit_among_eight_is_named_with_its_versions(parts: Parts) -> None:
    parts.breaks('has("f")')
    result = parts.ask()
    assert result["culprits"] == [{"name": "part-f", "good": GOOD, "bad": BAD}]
    assert (result["along"], result["changes"], result["reason"]) == ([], 8, "ValueError: it broke")
    assert result["runs"] == parts.count() <= 8
    assert not list((parts.small.project.state / "host").glob("*"))  # nothing is kept


def test_two_that_fail_only_together_are_both_named(parts: Parts) -> None:
    parts.breaks('has("b") and has("g")')
    result = parts.ask()
    assert names(result["culprits"]) == ["part-b", "part-g"]
    tried = {tuple(row["changes"]): row["verdict"] for row in result["tried"]}
    for alone in ("part-b 1.0 → 2.0", "part-g 1.0 → 2.0"):
        assert tried[(alone,)] == "green"


def test_a_set_that_cannot_exist_is_an_outcome_and_not_an_end(parts: Parts) -> None:
    parts.wheel("part-f", BAD, ["part-c>=3"])
    parts.wheel("part-h", BAD, ["part-a<2"])
    parts.wheel("part-c", "3.0")
    parts.pins(parts.bad, {**dict.fromkeys(NAMES, BAD), "part-c": "3.0", "part-h": GOOD})
    parts.breaks('has("f")')
    result = parts.ask()
    assert names(result["culprits"]) == ["part-f"]
    assert names(result["along"]) == ["part-c"]


def test_what_excludes_each_other_is_unresolvable_and_is_said(parts: Parts) -> None:
    # The good end's d cannot be beside the bad end's a, and the bad end has no d: no middle way but without d.
    parts.wheel("part-a", BAD, ["part-d>=2"])
    parts.wheel("part-d", BAD, ["part-h>=2"])
    parts.wheel("part-h", BAD, ["part-b<2"])
    parts.pins(parts.bad, dict.fromkeys(NAMES, BAD))
    parts.breaks('has("b")')
    result = parts.ask()
    assert names(result["culprits"]) == ["part-b"]
    assert "unresolvable" in verdicts(result)
    (row,) = [row for row in result["tried"] if row["verdict"] == "unresolvable"][:1]
    assert row["runs"] == 0 and "part-" in row["reason"]


def test_what_only_came_along_can_be_the_culprit(parts: Parts) -> None:
    parts.wheel("part-a", BAD, ["part-h>=2"])
    parts.breaks('has("h")')
    result = parts.ask()
    assert (names(result["culprits"]), result["along"]) == (["part-h"], [])


def test_another_failure_on_the_way_is_not_followed(parts: Parts) -> None:
    """With c, but without e, it fails in another way, which is not what is looked for."""
    parts.suite(
        'if has("c") and not has("e"):\n    end("works", "failed", reason="ImportError: no e")\n'
        'elif has("g"):\n    end("works", "failed", reason="ValueError: it broke")\nelse:\n    end("works")\n'
    )
    result = parts.ask()
    assert names(result["culprits"]) == ["part-g"]
    assert result["fault"] == "ValueError"


def test_numbers_out_of_bounds_that_vary_are_the_same_failure(parts: Parts) -> None:
    parts.suite(
        """\
def broken(*names):
    wrong = [{"name": name, "value": 2, "bound": {"at_most": 1}, "ok": False} for name in names]
    end("works", "failed", reason=f"{names[0]} is 2", measurements=wrong)
if has("g"):
    broken("x", *(["y"] if count % 2 else []))
elif has("d"):
    broken("z")
else:
    end("works")
"""
    )
    result = parts.ask()
    assert names(result["culprits"]) == ["part-g"]
    assert {row["verdict"] for row in result["tried"]} == {"green", "red", "other"}


def test_added_and_removed_distributions_are_changes(parts: Parts) -> None:
    parts.pins(parts.good, {"part-a": GOOD, "part-b": GOOD})
    parts.pins(parts.bad, {"part-a": GOOD, "part-c": BAD})
    parts.breaks('has("c")')
    assert parts.ask()["culprits"] == [{"name": "part-c", "good": None, "bad": BAD}]
    parts.suite("import importlib.util\n" + condition('importlib.util.find_spec("part_b") is None'))
    assert parts.ask()["culprits"] == [{"name": "part-b", "good": GOOD, "bad": None}]


def test_an_answer_that_changes_is_asked_until_it_is_decided(parts: Parts) -> None:
    """Every third run of a good set fails as well; one answer each would blame the wrong ones."""
    parts.breaks('has("e") or count % 3 == 0')
    result = parts.ask("--repeat", "3")
    assert names(result["culprits"]) == ["part-e"]
    assert max(row["runs"] for row in result["tried"]) > 3


def test_a_flaky_culprit_that_is_not_confirmed_is_looked_for_again(parts: Parts) -> None:
    # The third run, which is the first of the search, fails by chance: what it says falls at the confirmation.
    parts.breaks('has("a") or count == 3')
    result = parts.ask()
    assert names(result["culprits"]) == ["part-a"]


def test_an_advisory_that_blames_a_package_is_tried_first(parts: Parts) -> None:
    (parts.small.project.advisories / "VETTED-0001.toml").write_text(
        'id = "VETTED-0001"\nsummary = "h"\nseverity = "crash"\npublished = 2026-11-21\ndetails = "h"\n'
        'probes = ["works"]\nreferences = [{ type = "WEB", url = "https://example.invalid/h" }]\n'
        '[[affected]]\npackages = { part-h = ">=2", part-a = "*" }\n[[fix]]\nnote = "h"\n'
        '[evidence]\nkind = "executed"\nsays = "h"\n'
    )
    parts.breaks('has("h")')
    result = parts.ask()
    assert names(result["culprits"]) == ["part-h"]
    assert result["runs"] <= 7


@pytest.mark.parametrize(
    ("broken", "message"),
    [("True", "is red on the good end already: ValueError"), ("False", "is green on the bad end")],
)
def test_ends_that_do_not_answer_as_they_should_end_with_1(parts: Parts, broken: str, message: str) -> None:
    parts.breaks(broken)
    assert message in parts.ask(code=1)["error"]["what"]


def test_neither_or_both_of_probe_and_command_end_with_2(parts: Parts) -> None:
    assert parts.command(parts.small.root, *parts.argv("--", "true")).code == 2


def test_people_see_what_was_tried_and_what_to_do_next(parts: Parts) -> None:
    parts.breaks('has("f")')
    answer = parts.command(parts.small.root, *parts.argv())
    assert answer.code == 0, answer.err
    assert "verdict" in answer.out.splitlines()[0]
    assert "8 packages changed; this one turns it red" in answer.out
    assert "  part-f 1.0 → 2.0\n" in answer.out
    assert "next: read and complete the draft" in answer.out
