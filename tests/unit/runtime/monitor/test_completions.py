"""What became of the completions of a step: whether their rewards differ, over ranks, generations and resumed runs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.monitor.completions import Completions, Generated

NAN = math.nan


class Tensor:
    """Numbers as the monitor reads them from a tensor."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def tolist(self) -> list[Any]:
        return self.values

    def reshape(self, *_: int) -> Tensor:
        return Tensor([[value] for value in self.values])

    def __getitem__(self, _: Any) -> Tensor:
        return Tensor([row[0] for row in self.values])


def step(
    completions: Completions,
    *generations: tuple[list[float], list[float]],
    size: int = 4,
    rank: int = 0,
    resumed: bool = False,
) -> dict[str, float]:
    """The numbers of a step with these generations: rewards of all ranks, advantages of this one."""
    for rewards, advantages in generations:
        marks = Tensor(list(range(len(advantages))))
        table = Tensor([[value] for value in rewards])
        completions.events.append(Generated(marks, Tensor(advantages), table, complete=True))
    trainer = SimpleNamespace(
        num_generations=size,
        num_iterations=1,
        scale_rewards="none",
        reward_weights=None,
        args=SimpleNamespace(),
        accelerator=SimpleNamespace(process_index=rank),
    )
    return completions.account(trainer, {}, resumed=resumed)  # fmt: skip


CONSTANT = ([0.5] * 4, [0.0] * 4)
LEARNING = ([1.0, 0.0, 1.0, 0.0], [0.5, -0.5, 0.5, -0.5])


def test_generations_without_two_different_rewards_are_counted() -> None:
    completions = Completions()
    assert [step(completions, CONSTANT)["signal_never"] for _ in range(3)] == [1, 2, 3]
    assert step(completions, LEARNING)["signal_never"] == 0
    assert step(completions, CONSTANT)["signal_lost"] == 1


def test_a_completion_that_nobody_scored_does_not_differ_from_a_constant_reward() -> None:
    numbers = step(Completions(), ([1.0, 1.0, 1.0, NAN], [0.0] * 4))
    assert (numbers["groups_constant"], numbers["signal_never"]) == (1.0, 1.0)
    earlier = step(Completions(), ([1.0, 1.0, 1.0, NAN], [0.25, 0.25, 0.25, -0.75]))  # a TRL that counts it as 0
    assert (earlier["groups_constant"], earlier["advantage_error"]) == (0.0, 0.0)


def test_the_groups_of_all_ranks_count() -> None:
    rewards = [*LEARNING[0], *CONSTANT[0]]
    second = step(Completions(), (rewards, CONSTANT[1]), rank=1)
    assert (second["groups_constant"], second["advantage_error"]) == (0.5, 0.0)
    spread = step(Completions(), (LEARNING[0], LEARNING[1][:2]))  # a group of four on two ranks
    assert spread["groups_constant"] == 0.0
    assert "advantage_sum" not in spread


def test_rewards_say_what_is_constant_and_not_the_advantages() -> None:
    assert step(Completions(), (CONSTANT[0], LEARNING[1]))["groups_constant"] == 1.0


def test_a_generation_hides_nothing_of_the_one_before_it_in_a_step() -> None:
    infinite = ([math.inf, 0.0, 0.0, 0.0], [0.0] * 4)
    assert step(Completions(), infinite, LEARNING)["rewards_infinite"] == 1
    broken = (LEARNING[0], [NAN, *LEARNING[1][1:]])
    assert math.isnan(step(Completions(), broken, LEARNING)["advantage_error"])


@pytest.mark.parametrize(
    ("last", "never", "lost"),
    [
        ({"signal_never": 7.0, "signal_lost": 0.0}, 8, 0),
        ({"signal_never": 0.0, "signal_lost": 3.0}, 0, 4),
        ({"signal_never": 0.0, "signal_lost": 0.0}, 0, 1),
        ({}, 0, 1),  # the earlier process had no monitor: nobody knows
    ],
)
def test_a_resumed_run_counts_on(last: dict[str, float], never: int, lost: int) -> None:
    completions = Completions()
    completions.resume(last)
    numbers = step(completions, CONSTANT, resumed=True)
    assert (numbers["signal_never"], numbers["signal_lost"]) == (never, lost)
