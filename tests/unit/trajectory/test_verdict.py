"""The verdict: a sentence that says what changed, and a picture of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from builder.base import errors
from builder.trajectory import picture, verdict
from builder.trajectory.record import Record
from tests.unit.trajectory.kit import make

SVG = "{http://www.w3.org/2000/svg}"


def test_the_same_bits_are_said_first() -> None:
    judged = verdict.judge(make(1), make(1, stack="two"))
    assert str(judged) == "one → two: the training is the same, to the last bit, in 12 of 12 seeds"
    assert judged.good and judged.result is None
    fewer = verdict.judge(make(1, seeds=14), make(1, seeds=12, stack="two"))
    assert (fewer.answer, fewer.same) == ("same bits", 12)


def test_within_the_band() -> None:
    judged = verdict.judge(make(1), make(2, stack="two"))
    assert judged.good
    assert "one → two: the training does not change: within the band in all 6 numbers (p = " in str(judged)
    assert str(judged).endswith("12 and 12 seeds)")


def test_a_missing_seed_does_not_matter() -> None:
    assert verdict.judge(make(1), make(2, seeds=11, first=2)).good


def test_outside_of_the_band_it_says_which_number_where_and_how() -> None:
    def lower(name: str, step: int, value: float) -> float:
        return value - 0.3 if name in ("reward", "kl") and step >= 20 else value

    judged = verdict.judge(make(1), make(2, stack="two", change=lower))
    assert not judged.good
    sentence = str(judged)
    assert sentence.startswith("one → two: the training changes: ")
    assert "leaves the band, at " in sentence and " instead of " in sentence and "p < 0.001" in sentence
    assert ("reward leaves" in sentence and "so does KL" in sentence) or (
        "KL leaves" in sentence and "so does reward" in sentence
    )
    assert {row["number"] for row in judged.to_json()["departures"]} == {"reward", "kl"}


def test_noise_is_said_in_words() -> None:
    judged = verdict.judge(make(1), make(2, stack="two", noise=0.09))
    assert "times as much from step to step in steps" in str(judged)


def test_seeds_that_fail_are_a_change() -> None:
    failed = {12: "FloatingPointError: kl is nan at step 3"}
    judged = verdict.judge(make(1), make(2, seeds=11, stack="two", failed=failed))
    assert not judged.good
    assert str(judged).endswith("1 of 12 seeds fail, the first with FloatingPointError: kl is nan at step 3")
    assert verdict.judge(make(1, seeds=11, failed=failed), make(2, seeds=11, stack="two", failed=failed)).good


def test_a_number_that_only_one_of_the_two_logs_is_named() -> None:
    before = make(1)
    old = [seed.model_copy(update={"numbers": {n: v for n, v in seed.numbers.items() if n != "entropy"}})
           for seed in before.seeds]  # fmt: skip
    judged = verdict.judge(before.model_copy(update={"seeds": old}), make(2, stack="two"))
    assert judged.good
    assert "within the band in 5 numbers; only one of the two logs entropy" in str(judged)


def test_records_of_one_stack_are_told_apart() -> None:
    before = make(1)
    threads = before.place.model_copy(update={"threads": 2})
    assert verdict.labels(before, make(1, place=threads)) == ("one (1 thread)", "one (2 threads)")
    other = make(1, lock="sha256:" + "1" * 64)
    assert verdict.labels(before, other) == (f"one (lock {'0' * 12})", f"one (lock {'1' * 12})")
    assert verdict.labels(before, make(1, first=13)) == ("one (seeds 1 to 12)", "one (seeds 13 to 24)")
    assert verdict.labels(before, before) == ("one (seeds 1 to 12)", "one (again)")


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (make(2, task="sha256:" + "1" * 64), "did not train the same task"),
        (make(2, steps=30), "60 steps, one for 30"),
        (make(2, seeds=7), "has 7 seeds that trained to the end, and a comparison needs 8"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(after: Record, words: str) -> None:
    with pytest.raises(errors.BadInputError, match=words) as caught:
        verdict.judge(make(1), after)
    assert caught.value.next_step.startswith("vetted trajectories")


def test_the_picture_has_a_panel_for_each_number_and_marks_where_one_leaves() -> None:
    def lower(name: str, step: int, value: float) -> float:
        return value - 0.3 if name == "reward" and step >= 20 else value

    within, outside = (
        ET.fromstring(picture.svg(verdict.judge(make(1), after)))
        for after in (make(2, stack="<two>"), make(2, stack="two", change=lower))
    )  # fmt: skip
    for root in (within, outside):
        assert len(root.findall(f"{SVG}g")) == 6
    assert "<two>" in str(within.get("aria-label"))
    marks = [len(panel.findall(f"{SVG}rect")) for panel in outside.findall(f"{SVG}g")]
    assert marks[0] >= 3 and not any(marks[1:])
    assert not any(panel.findall(f"{SVG}rect") for panel in within.findall(f"{SVG}g"))


def test_a_picture_of_numbers_that_never_change_is_drawn() -> None:
    constant = make(1, change=lambda _name, _step, _value: 8.0)
    text = picture.svg(verdict.judge(constant, constant))
    assert "nan" not in text and "inf" not in text
