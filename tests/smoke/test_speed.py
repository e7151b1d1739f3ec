"""Throughput: what is counted, and which steps."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from smoke.kit import speed
from smoke.kit.grpo import Reward
from smoke.probe import Context


def readings(name: str, lengths: list[float], seconds: list[float]) -> dict[str, float]:
    reward = Reward()
    for _ in lengths:
        reward(completions=["ab"] * 4)
    log = [{"loss": 0.0, name: length} for length in lengths]
    trainer = SimpleNamespace(state=SimpleNamespace(log_history=[*log, {"train_runtime": 1.0}]))
    context = Context("cpu", 0, Path("/nonexistent"))
    return {reading.name: reading.value for reading in speed.readings(context, trainer, reward, seconds)}


@pytest.mark.parametrize("name", ["completions/mean_length", "completion_length"])
def test_the_first_step_is_left_out(name: str) -> None:
    numbers = readings(name, [16.0, 10.0, 5.0], [9.0, 0.5, 1.5])
    assert numbers["step_time"] == 1.0
    assert numbers["tokens_per_second"] == (4 * 10 + 4 * 5) / 2.0
    assert numbers["peak_memory"] > 1


def test_a_run_of_one_step_has_no_speed() -> None:
    numbers = readings("completions/mean_length", [16.0], [9.0])
    assert math.isnan(numbers["step_time"])
    assert math.isnan(numbers["tokens_per_second"])


def test_every_bound_has_a_reading() -> None:
    assert {bound.name for bound in speed.BOUNDS} == set(readings("completion_length", [1.0, 1.0], [1.0, 1.0]))
