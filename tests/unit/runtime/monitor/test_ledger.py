"""Which completions reach the loss, and how often."""

from __future__ import annotations

from runtime.monitor.samples import Ledger

A, B, C = (11, 0.5), (12, -0.5), (13, 0.0)
NONE = {"samples_missing": 0.0, "samples_foreign": 0.0}


def test_completions_that_are_used_as_often_as_they_should_be_are_nothing() -> None:
    ledger = Ledger()
    for _ in range(2):
        ledger.generated([A, B, B], 2, complete=True)
        for _ in range(2):
            ledger.used([B, A])
            ledger.used([B])
    assert ledger.take() == NONE


def test_completions_that_are_left_when_the_next_are_generated_are_missing() -> None:
    ledger = Ledger()
    ledger.generated([A, B, C], 1, complete=True)
    ledger.used([A])
    assert ledger.take() == NONE  # they may come yet
    ledger.generated([A], 1, complete=True)
    assert ledger.take() == {"samples_missing": 2.0, "samples_foreign": 0.0}


def test_a_completion_with_the_advantage_of_another_is_foreign() -> None:
    ledger = Ledger()
    ledger.generated([A, B], 1, complete=True)
    ledger.used([(A[0], B[1]), A])
    assert ledger.take()["samples_foreign"] == 1


def test_a_completion_that_is_used_again_is_foreign() -> None:
    ledger = Ledger()
    ledger.generated([A], 1, complete=True)
    ledger.used([A])
    ledger.used([A])
    assert ledger.take()["samples_foreign"] == 1


def test_several_generations_of_one_step_may_be_used_in_turn() -> None:
    """TRL 0.16 generates for each micro-batch."""
    ledger = Ledger()
    ledger.generated([A], 2, complete=True)
    ledger.generated([B], 2, complete=False)
    for _ in range(2):
        ledger.used([A])
        ledger.used([B])
    ledger.generated([C], 2, complete=True)
    assert ledger.take() == NONE
