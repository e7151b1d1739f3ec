"""What the observer keeps from step to step."""

from __future__ import annotations

from runtime.monitor.completions import Completions
from runtime.monitor.observer import Observer


def test_a_resumed_run_counts_on_how_long_its_loss_has_been_empty() -> None:
    observer = object.__new__(Observer)  # one of no trainer
    observer.completions = Completions()
    observer.resume({"loss_empty": 7.0})
    numbers = {"tokens_in_loss": 0.0}
    observer._streaks(numbers)
    assert (observer.resumed, numbers["loss_empty"]) == (True, 8.0)
