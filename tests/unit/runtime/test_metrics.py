"""The metrics of a run: a row for each step, once."""

from __future__ import annotations

from pathlib import Path

from runtime import metrics


def test_rows_come_back_and_one_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    assert metrics.read(tmp_path) == []
    metrics.add(tmp_path, {"step": 1, "reward": 0.5, "loss": float("nan")})
    with (tmp_path / metrics.METRICS).open("a") as file:
        file.write('{"step": 2, "rew')
    assert metrics.read(tmp_path) == [{"step": 1, "reward": 0.5, "loss": "nan"}]


def test_what_a_resumed_run_does_again_is_not_there_twice(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        metrics.add(tmp_path, {"step": step})
    metrics.cut(tmp_path, 2)
    assert [row["step"] for row in metrics.read(tmp_path)] == [1, 2]
