"""Whether rounding explains the distance between vLLM and trainer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from runtime.monitor import judge, rounding

EQUAL = {"engine_compared": 32.0, "engine_stale": 0.0}
TRAINER = SimpleNamespace(args=SimpleNamespace())


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the next measurements give; one that nobody expects fails."""
    answers: list[float] = []
    monkeypatch.setattr(rounding, "measured", lambda *_: answers.pop(0))
    return answers


def step(of: rounding.Rounding, apart: float, **engine: float) -> dict[str, float]:
    """The numbers of a step in which vLLM and trainer are so far apart."""
    of.rows = ("some",)
    numbers = {"sampler_diff": apart, **(engine or EQUAL)}
    of.judge(numbers, TRAINER)
    return numbers


def alarms(numbers: dict[str, float]) -> list[str]:
    return [f"{breach.check.name} {breach.check.level}" for breach in judge.breaches({"step": 1, **numbers})]


def test_a_distance_that_rounding_explains_is_advice(measured: list[float]) -> None:
    measured.append(0.21)
    numbers = step(rounding.Rounding(), 0.27)
    assert alarms(numbers) == ["sampler-rounding advice"]
    assert (numbers["sampler_noise"], numbers["sampler_rounding"]) == (0.21, 0.27)


def test_a_distance_beyond_rounding_is_an_alarm(measured: list[float]) -> None:
    measured.append(0.01)
    assert alarms(step(rounding.Rounding(), 0.27)) == ["sampler-trainer alarm"]


@pytest.mark.parametrize("engine", [{"engine_compared": 32.0, "engine_stale": 1.0}, {"engine_compared": 0.0}])
def test_with_other_weights_or_unknown_ones_nothing_is_explained(
    measured: list[float], engine: dict[str, float]
) -> None:
    assert "sampler-trainer alarm" in alarms(step(rounding.Rounding(), 0.27, **engine))
    assert measured == []


@pytest.mark.usefixtures("measured")
def test_within_the_bound_nothing_is_measured_and_all_is_judged() -> None:
    numbers = step(rounding.Rounding(), 0.1)
    assert alarms(numbers) == []
    assert (numbers["sampler_unexplained"], numbers["sampler_rounding"]) == (0.1, 0.0)


def test_it_is_measured_again_when_the_last_measurement_explains_too_little(measured: list[float]) -> None:
    measured[:] = [0.2, 0.4]
    of = rounding.Rounding()
    assert [alarms(step(of, apart)) for apart in (0.25, 0.3, 0.5)] == [["sampler-rounding advice"]] * 3
    assert measured == []


def test_what_cannot_be_measured_explains_nothing_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> float:
        raise MemoryError("no room\nfor float32")

    monkeypatch.setattr(rounding, "measured", fails)
    of = rounding.Rounding()
    assert alarms(step(of, 0.27)) == alarms(step(of, 0.27)) == ["sampler-trainer alarm"]
    assert (of.reason, of.times) == ("MemoryError: no room", 1)


def test_a_run_that_stays_wrong_is_measured_only_so_often(measured: list[float]) -> None:
    measured[:] = [0.01] * rounding.TIMES
    of = rounding.Rounding()
    for _ in range(rounding.TIMES + 5):
        assert alarms(step(of, 0.5)) == ["sampler-trainer alarm"]


@pytest.mark.usefixtures("measured")
def test_a_number_that_is_none_is_never_explained() -> None:
    assert alarms(step(rounding.Rounding(), float("nan"))) == ["sampler-trainer alarm"]
