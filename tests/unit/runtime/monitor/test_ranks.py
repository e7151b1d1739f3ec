"""Rank 0 compares the marks of the weights that the other ranks wrote into their rows."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runtime.monitor import record
from runtime.monitor.ranks import AT_ONCE, KEPT, TAIL, Ranks


def row(folder: Path, rank: int, step: int, mark: int) -> dict[str, int]:
    written = {"step": step, "rank": rank, "weights_mark": mark}
    record.add(folder, rank, written)
    return written


def test_ranks_with_other_weights_are_counted(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 4)
    for rank, mark in ((1, 7), (2, 8), (3, 9)):
        row(tmp_path, rank, 1, mark)
    assert ranks.after(row(tmp_path, 0, 1, 7)) == {"ranks_apart": 2}
    assert ranks.at_end(1) == {}  # each is compared once
    assert ranks.unseen() == 0


def test_a_rank_that_writes_later_is_compared_at_a_later_step(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    row(tmp_path, 1, 1, 7)
    assert ranks.after(row(tmp_path, 0, 1, 7)) == {"ranks_apart": 0}
    row(tmp_path, 2, 1, 5)
    row(tmp_path, 1, 2, 8)
    assert ranks.after(row(tmp_path, 0, 2, 8)) == {"ranks_apart": 1}
    row(tmp_path, 2, 2, 8)
    assert ranks.at_end(2) == {"ranks_apart": 0}


def test_the_worst_of_several_late_steps_counts(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    for step in (1, 2, 3):
        assert ranks.after(row(tmp_path, 0, step, step)) == {}
    for step in (1, 2, 3):
        row(tmp_path, 1, step, step if step != 2 else 9)
    assert ranks.at_end(3) == {"ranks_apart": 1}


def test_what_an_earlier_run_left_is_not_compared(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        for rank in (1, 2):
            row(tmp_path, rank, step, 1)
    ranks = Ranks(tmp_path, 3)
    record.begin(tmp_path, 1, 0, ranks=3)  # rank 2 runs on another machine now, and its old rows stay here
    for step in (1, 2, 3):
        row(tmp_path, 1, step, 7)
        assert ranks.after(row(tmp_path, 0, step, 7)) == {"ranks_apart": 0}
    assert (ranks.at_end(3), ranks.unseen()) == ({}, 1)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting is an error."""

    def wait(_: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(time, "sleep", wait)


@pytest.mark.usefixtures("impatient")
def test_the_end_is_not_waited_for_where_no_other_rank_writes(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    ranks.after(row(tmp_path, 0, 1, 7))
    assert (ranks.at_end(1), ranks.unseen()) == ({}, 2)


@pytest.mark.usefixtures("impatient")
def test_a_rank_whose_monitor_has_stopped_is_waited_for_only_so_long(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    row(tmp_path, 1, 1, 7)
    ranks.after(row(tmp_path, 0, 1, 7))
    ranks.after(row(tmp_path, 0, 2, 8))
    assert ranks.at_end(2, patience=0.0) == {}


def test_many_ranks_are_read_in_turn_and_old_steps_are_forgotten(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3 * AT_ONCE + 1)
    for step in range(1, KEPT + 3):
        for rank in range(1, 3 * AT_ONCE):  # the last one never writes
            row(tmp_path, rank, step, step)
        ranks.after(row(tmp_path, 0, step, step))
        if step == 1:
            assert ranks.compared == set(range(1, AT_ONCE + 1))
    assert ranks.unseen() == 1
    assert (min(ranks.mine), len(ranks.mine)) == (3, KEPT)
    assert {step for _, step in ranks.done} <= set(ranks.mine)


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    for step in range(1, 1001):
        row(tmp_path, 1, step, step)
    steps = [last["step"] for last in record.last(tmp_path, 1, TAIL)]
    assert (steps[0] > 500, steps[-1]) == (True, 1000)
    assert ranks.after(row(tmp_path, 0, 1000, 1000)) == {"ranks_apart": 0}
