"""Batches: whole groups of completions over all processes and steps, in training and in evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.config.test_look import Checks, replaced
from tests.unit.runtime.conftest import GOOD


def test_groups_are_counted_over_all_processes_and_steps(check: Checks) -> None:
    text = GOOD + "per_device_train_batch_size: 2\nnum_generations: 16\n"
    assert len(check(text, ranks=1)) == 1
    assert check(text, ranks=8) == []
    assert check(text, "--gradient_accumulation_steps", "8") == []
    assert check(text, "--generation_batch_size", "16") == []


def test_a_batch_that_does_not_fit_is_named_where_it_is_set(check: Checks) -> None:
    (only,) = check(f"{GOOD}max_steps: 1\nper_device_train_batch_size: 6\nnum_generations:\n")
    assert only.message.startswith("my.yaml:5: per_device_train_batch_size 6 x 1 process = 6 completions")
    (only,) = check(GOOD, "--num_generations", "3")
    assert only.message.startswith("--num_generations: per_device_train_batch_size 8 x 1")


def test_defaults_that_do_not_fit_have_no_place(check: Checks, site: Path) -> None:
    config = site / "trl/trainer/grpo_config.py"
    config.write_text(config.read_text().replace("default=8", "default=7"))
    (only,) = check(GOOD)
    assert only.message.startswith("per_device_train_batch_size 8 x 1")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("per_device_eval_batch_size: 3", "my.yaml:5: per_device_eval_batch_size 3 x 1 is not divisible by"),
        ("num_generations_eval: 3", "my.yaml:5: per_device_eval_batch_size 8 x 1 is not divisible by"),
        ("num_generations: 4", ""),
    ],
)
def test_batches_of_an_evaluation_are_whole_groups(check: Checks, site: Path, lines: str, message: str) -> None:
    config = site / "trl/trainer/grpo_config.py"
    config.write_text(f"{config.read_text()}    num_generations_eval: int | None = None\n")
    Path("data").mkdir()
    for name in ("train.jsonl", "test.jsonl"):
        Path("data", name).write_text(Path("train.jsonl").read_text())
    checks = check(f"{replaced('dataset_name', 'data')}eval_strategy: steps\n{lines}\n")
    assert [each.message.startswith(message) for each in checks] == ([True] if message else [])
