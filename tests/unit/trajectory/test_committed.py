"""The golden trajectories that are committed: with a record of an older task, no upgrade of its stack is compared."""

from __future__ import annotations

from builder.base import project
from builder.intent import stack
from builder.upgrade import training
from tests.conftest import ROOT


def test_the_committed_records_are_of_todays_task() -> None:
    home = project.find(ROOT)
    older = [sentence for name in stack.names(home) for sentence in training.older(home, name)]
    assert older == [], "record them again: vetted trajectories STACK --force"
