"""The metrics of a run: a row for each step, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime import metrics


def test_rows_come_back_and_one_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    assert metrics.read(tmp_path) == []
    metrics.add(tmp_path, {"step": 1, "reward": 0.5, "loss": float("nan")})
    with (tmp_path / metrics.METRICS).open("a") as file:
        file.write('{"step": 2, "rew')
    assert metrics.read(tmp_path) == [{"step": 1, "reward": 0.5, "loss": "nan"}]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"reward": 0.25, "loss": 1.5}, "reward 0.250"),
        ({"loss": 2.30258}, "loss 2.303"),
        ({"loss": 0.00012}, "loss 0.00012"),
        ({"loss": float("nan")}, "loss nan"),
        ({"eval_loss": 1.0}, ""),
    ],
)
def test_a_step_shows_its_reward_or_its_loss(numbers: dict[str, float], words: str) -> None:
    assert metrics.progress(numbers) == words


def test_a_trainer_without_rewards_gets_a_curve_of_its_loss() -> None:
    rows: list[dict[str, object]] = [
        {"step": 1, "loss": 2.5},
        {"step": 2, "loss": "nan"},
        {"step": 3, "loss": 1.5, "train_runtime": 9.0},
    ]
    assert metrics.curves(rows) == [("loss", [(1, 2.5), (3, 1.5)])]
    assert [title for title, _ in metrics.curves([{"step": 1, "loss": 0.1, "reward": 0.5}])] == ["reward", "loss"]
    assert metrics.curves([{"step": 3, "train_runtime": 9.0}]) == []


def test_what_a_resumed_run_does_again_is_not_there_twice(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        metrics.add(tmp_path, {"step": step})
    metrics.cut(tmp_path, 2)
    assert [row["step"] for row in metrics.read(tmp_path)] == [1, 2]
