"""Advantages against rewards."""

from __future__ import annotations

import math
import statistics

import pytest

from runtime.monitor import groups
from runtime.monitor.groups import Rule

NAN = math.nan
REWARDS = [[1.0], [0.0], [0.5], [0.25], [3.0], [3.0], [2.0], [2.5]]


def values(rewards: list[list[float]], rule: Rule) -> list[float]:
    return [advantage.value for advantage in groups.expected(rewards, rule)]


def test_a_group_is_measured_in_its_own_standard_deviation() -> None:
    advantages = values(REWARDS, Rule(4))
    spread = statistics.stdev([1.0, 0.0, 0.5, 0.25]) + 1e-4
    assert advantages[:2] == pytest.approx([(1 - 0.4375) / spread, (0 - 0.4375) / spread])
    assert sum(advantages[4:]) == pytest.approx(0)


@pytest.mark.parametrize(
    ("scale", "spread"), [("none", 1.0), ("batch", statistics.stdev(row[0] for row in REWARDS) + 1e-4)]
)
def test_the_other_scales(scale: str, spread: float) -> None:
    assert values(REWARDS, Rule(4, scale))[0] == pytest.approx((1 - 0.4375) / spread)


def test_weights_count_and_what_a_function_did_not_score_does_not() -> None:
    assert values([[1.0, 2.0], [0.0, NAN]], Rule(2, "none", (1.0, 0.5))) == pytest.approx([1.0, -1.0])


def test_a_completion_that_nobody_scored_counts_for_nothing_or_for_zero() -> None:
    rewards = [[2.0], [NAN], [4.0]]
    assert values(rewards, Rule(3, "none")) == pytest.approx([-1.0, 0.0, 1.0])
    assert values(rewards, Rule(3, "none", skip_unscored=False)) == pytest.approx([0.0, -2.0, 2.0])


def test_functions_that_are_normalised_first_count_alike_whatever_their_size() -> None:
    rewards = [[0.0, 0.0], [1.0, 1000.0], [1.0, 1000.0], [0.0, 0.0]]
    advantages = values(rewards, Rule(4, normalise_first=True))
    assert advantages[0] == pytest.approx(-advantages[1])
    assert values(rewards[::-1], Rule(4, normalise_first=True)) == pytest.approx(advantages[::-1])


def test_what_float32_rounds_is_no_error_and_more_is() -> None:
    constant = [[0.3]] * 4  # TRL divides what is left of the difference by 1e-4
    formula = groups.expected(constant, Rule(4))
    assert groups.error([3e-4, -3e-4, 3e-4, -3e-4], formula) == 0
    assert groups.error([3e-4, -3e-4, 3e-4, -3e-4], groups.expected(constant, Rule(4, normalise_first=True))) == 0
    formula = groups.expected(REWARDS, Rule(4))
    right = [entry.value for entry in formula]
    assert groups.error(right, formula) == 0
    assert groups.error([-value for value in right], formula) == pytest.approx(2, rel=0.01)
    assert math.isnan(groups.error([NAN, *right[1:]], formula))


def test_sums_and_constant_groups() -> None:
    noise = [0.01] * 4
    assert groups.sums([1.0, -1.0, 0.5, -0.5], 2, noise) == 0
    assert groups.sums([1.0, 1.0, 0.5, -0.5], 2, noise) == pytest.approx(0.99)
    assert groups.constant([0.005, -0.005, 0.5, -0.5], 2, noise) == 1


@pytest.mark.parametrize("first", [False, True])
def test_a_group_with_two_different_rewards_is_not_alike(first: bool) -> None:
    rule = Rule(2, weights=(1.0, 0.5), normalise_first=first)
    long, short = [64.0, 0.2], [64.0, 0.3]
    assert groups.alike([long, short], rule) == 0
    assert groups.alike([long, long, short, short], rule) == 2
    assert groups.alike([long, long, long, short], rule) == 1
    assert groups.alike([[0.1 + 0.2, 0.0], [0.3, 0.0]], rule) == 1  # what rounds is no difference
    assert groups.alike([[NAN, NAN], [64.0, 0.2]], rule) == 1  # a reward alone differs from none


def test_what_no_weight_counts_or_cancels_is_no_difference() -> None:
    assert groups.alike([[1.0, 5.0], [1.0, 7.0]], Rule(2, weights=(1.0, 0.0), normalise_first=True)) == 1
    assert groups.alike([[1.0, 2.0], [2.0, 1.0]], Rule(2)) == 1
    assert groups.alike([[1.0, 2.0], [2.0, 1.0]], Rule(2, normalise_first=True)) == 0
    assert groups.alike([[NAN], [2.0]], Rule(2, skip_unscored=False)) == 0


def test_rewards_of_one_size_leave_no_room_for_a_wrong_advantage_of_another() -> None:
    rewards = [[100.0, 0.2], [101.0, 0.3], [103.0, 0.1], [100.0, 0.9]]
    formula = groups.expected(rewards, Rule(4, normalise_first=True))
    right = [entry.value for entry in formula]
    assert max(entry.noise for entry in formula) < 0.01
    assert groups.error([right[1], right[0], *right[2:]], formula) > 0.1


def test_what_nobody_scored_is_no_difference_where_functions_are_normalised_first() -> None:
    for skip in (True, False):
        assert groups.alike([[1.0], [1.0], [NAN], [1.0]], Rule(4, normalise_first=True, skip_unscored=skip)) == 1


def test_a_completion_that_nobody_scored_has_the_mean_of_its_group_in_earlier_releases() -> None:
    rewards = [[1.0], [0.0], [1.0], [NAN], [0.0], [1.0], [0.0], [1.0]]
    skipped = values(rewards, Rule(4, normalise_first=True))
    counted = values(rewards, Rule(4, normalise_first=True, skip_unscored=False))
    assert skipped[3] == 0.0
    assert counted[3] != 0.0
    assert counted[:3] != pytest.approx(skipped[:3])
