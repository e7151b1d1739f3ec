"""The test behind a verdict: alarms at a change of any kind, and hardly ever without one."""

from __future__ import annotations

import pytest

from builder.trajectory import band
from tests.unit.trajectory.kit import make


def test_p_values_of_the_same_training_are_uniform() -> None:
    """Of uniform p-values, 60 lie like this with a probability of more than 0.9999."""
    values = [
        band.compare(make(2 * i, seeds=8, steps=20), make(2 * i + 1, seeds=8, steps=20)).p for i in range(60)
    ]  # fmt: skip
    assert 0.3 < sum(values) / len(values) < 0.7
    assert 5 <= sum(value <= 0.25 for value in values) <= 30
    assert min(values) > band.ALARM


@pytest.mark.parametrize("number", ["reward", "grad_norm"])
def test_a_shift_of_one_number_is_an_alarm_that_names_it(number: str) -> None:
    after = make(2, change=lambda name, step, value: value + 0.1 if name == number and step >= 30 else value)
    result = band.compare(make(1), after)
    assert result.alarm
    assert {departure.feature.number for departure in result.departures} == {number}
    levels = [departure for departure in result.departures if departure.feature.kind == "level"]
    assert levels and all(departure.after > departure.before for departure in levels)
    windows = [departure.feature for departure in levels if departure.feature.last - departure.feature.first < 10]
    assert windows and all(feature.first > 30 for feature in windows)


def test_more_noise_from_step_to_step_is_an_alarm() -> None:
    result = band.compare(make(1), make(2, noise=0.06))
    assert result.alarm
    assert result.departures[0].feature.kind == "noise"


def test_seeds_that_differ_more_are_an_alarm() -> None:
    result = band.compare(make(1, seeds=30), make(2, seeds=30, apart=0.2))
    assert result.alarm
    assert "spread" in {departure.feature.kind for departure in result.departures}


def test_a_constant_difference_far_below_what_a_number_varies_by_is_no_alarm() -> None:
    before = make(1, noise=0, apart=0)
    after = make(2, noise=0, apart=0, change=lambda _name, _step, value: value + 1e-4)
    noisy = [make(i) for i in (1, 2)]
    for record, other in zip((before, after), noisy, strict=True):
        for seed, noise in zip(record.seeds, other.seeds, strict=True):
            seed.numbers["reward"] = noise.numbers["reward"]
    assert not band.compare(before, after).alarm


def test_a_comparison_gives_the_same_again() -> None:
    assert band.compare(make(1), make(2)) == band.compare(make(1), make(2))


def test_it_says_what_would_have_been_noticed() -> None:
    few, many = (band.compare(make(1, seeds=n), make(2, seeds=n)).noticed["reward"] for n in (8, 30))
    assert 0 < many < few
    seen = band.compare(make(1, seeds=30), make(2, seeds=30, change=lambda _n, _s, value: value + 2 * many))
    assert seen.alarm


def test_a_number_that_never_changes_is_no_division_by_zero() -> None:
    before, after = (
        make(i, change=lambda name, _step, value: 8.0 if name == "length" else value) for i in (1, 2)
    )  # fmt: skip
    assert not band.compare(before, after).alarm
    longer = make(2, change=lambda name, _step, value: 8.5 if name == "length" else value)
    assert {d.feature.number for d in band.compare(before, longer).departures} == {"length"}
