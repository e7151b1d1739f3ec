"""Rank 0 compares the marks of the weights that the other ranks wrote into their rows."""

from __future__ import annotations

from pathlib import Path

from runtime.monitor import record
from runtime.monitor.ranks import TAIL, Ranks


def row(folder: Path, rank: int, step: int, mark: int) -> dict[str, int]:
    written = {"step": step, "rank": rank, "weights_mark": mark}
    record.add(folder, rank, written)
    return written


def test_ranks_with_other_weights_are_counted(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 4)
    for rank, mark in ((1, 7), (2, 8), (3, 9)):
        row(tmp_path, rank, 1, mark)
    assert ranks.compare(row(tmp_path, 0, 1, 7)) == {"ranks_apart": 2}
    assert ranks.compare() == {}  # each is compared once
    assert ranks.seen


def test_a_rank_that_writes_later_is_compared_at_a_later_step(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    row(tmp_path, 1, 1, 7)
    assert ranks.compare(row(tmp_path, 0, 1, 7)) == {"ranks_apart": 0}
    row(tmp_path, 2, 1, 5)
    row(tmp_path, 1, 2, 8)
    assert ranks.compare(row(tmp_path, 0, 2, 8)) == {"ranks_apart": 1}
    row(tmp_path, 2, 2, 8)
    assert ranks.compare() == {"ranks_apart": 0}
    assert (ranks.mine, ranks.theirs) == ({}, {})


def test_the_worst_of_several_late_steps_counts(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    for step in (1, 2, 3):
        assert ranks.compare(row(tmp_path, 0, step, step)) == {}
    for step in (1, 2, 3):
        row(tmp_path, 1, step, step if step != 2 else 9)
    assert ranks.compare() == {"ranks_apart": 1}


def test_rows_of_an_earlier_process_and_of_other_folders_are_not_compared(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 3)
    for step in (1, 2):
        row(tmp_path, 1, step, 1)  # resumed after step 2
    assert ranks.compare(row(tmp_path, 0, 3, 7)) == {}
    assert ranks.compare() == {}  # rank 2 writes on another machine
    assert not ranks.seen


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    for step in range(1, 1001):
        row(tmp_path, 1, step, step)
    steps = [last["step"] for last in record.last(tmp_path, 1, TAIL)]
    assert (steps[0] > 800, steps[-1]) == (True, 1000)
    ranks = Ranks(tmp_path, 2)
    assert ranks.compare(row(tmp_path, 0, 1000, 1000)) == {"ranks_apart": 0}
