"""The bonus for entropy, step by step: a coefficient that stays, or one that follows a target."""

from __future__ import annotations

import pytest

from smoke.kit import factors, samples
from smoke.kit.entropy import Bonus

LOW, HIGH = factors.ADAPTIVE["entropy_target"] - 1, factors.ADAPTIVE["entropy_target"] + 1


class Mean(float):
    """A number as torch has it."""

    def item(self) -> float:
        return float(self)


def after(level: str, *entropies: float) -> Bonus:
    bonus = Bonus({"entropy": level})
    for entropy in entropies:
        # Two micro-batches, of which the second one's tokens count three times as much.
        bonus.note([(Mean(entropy + 3), 10.0), (Mean(entropy - 1), 30.0)])
    return bonus


def test_a_fixed_coefficient_has_its_effect_in_every_step() -> None:
    assert after("bonus", LOW, HIGH).effects == [factors.ENTROPY_BONUS] * 3
    assert after("ignored", LOW, HIGH).effects == [0.0] * 3


def test_an_adaptive_one_grows_while_entropy_is_low_and_has_an_effect_only_then() -> None:
    start, change = factors.ENTROPY_BONUS, factors.ADAPTIVE["entropy_coef_delta"]
    bonus = after("adaptive bonus", LOW, HIGH, LOW)
    assert bonus.effects == pytest.approx([0.0, start + change, 0.0, start + change])
    assert bonus.near == pytest.approx(1)


@pytest.mark.parametrize(("entropy", "limit"), [(LOW, "entropy_coef_max"), (HIGH, "entropy_coef_min")])
def test_it_stays_within_its_limits(entropy: float, limit: str) -> None:
    assert after("adaptive bonus", *[entropy] * 9).coefficient == factors.ADAPTIVE[limit]


def test_importances_have_a_least_one_only_where_it_is_set() -> None:
    assert samples.limits({"constants": "own"}) == (factors.LEAST, factors.CAP)
    assert samples.limits({"constants": "default"}) == samples.limits({}) == (0.0, factors.CAP)
