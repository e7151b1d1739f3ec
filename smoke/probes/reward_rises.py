"""Does the reward rise, as fast as it should?

Catches training that runs with finite losses and gradients, and learns nothing or the wrong thing: advantages that are
zero, have the wrong sign or belong to other completions, a learning rate that does not reach the optimizer, completions
of an outdated policy, a KL penalty that keeps the policy where it was.

Three short runs start from one tiny policy, each with its own order of the data and its own samples. The reward is the
share of lower-case letters in a completion, which the policy learns within ten steps. The probe checks the final
reward, and the very first update, in which AdamW moves a parameter by the learning rate at most. Two kinds of errors do
not show here: AdamW hides the scale of the gradient, and letters have the same value at every position, so that scores
at wrong positions teach them too. Other probes cover these. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, grpo, side, tiny
from smoke.probe import Bound, Context, Probe, Reading

RUNS = 3
STEPS = 10
END = 3  # the last steps, whose mean reward is the final reward of a run
GENERATIONS = 8
SEQUENCES = 128
LEARNING_RATE = 6e-3

PROBE = Probe(
    matters="a run whose reward does not rise wastes its GPU hours",
    bounds=(
        Bound(
            "reward_end",
            "the mean over the last 3 steps of 3 runs. One run ends at 0.94 with a standard deviation of 0.033 (0.83 "
            "to 0.99 over 108 runs): the bound is 6 standard deviations of a mean of 3 below, a false alarm in 1e9 if "
            "they are normal. 0.16 without learning or with a stale policy, 0.01 with the wrong sign, 0.33 with a KL "
            "penalty 25 times too large, 0.6 to 0.8 without every second step, 0.66 to 0.85 at half the learning rate",
            at_least=0.82,
            headline=True,
        ),
        Bound(
            "reward_start",
            "before anything is learnt: 0.13 to 0.18 over 36 seeds. Above its bound, reward_end proves nothing",
            at_most=0.3,
        ),
        Bound(
            "first_update_error",
            "how far the largest change of a parameter in the first step is from the learning rate, as a share of it: "
            "7e-6 over 36 seeds, the rounding of float32; 0.5 at half the learning rate, 1 with that of a warm-up",
            at_most=1e-3,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3683",
        "https://github.com/huggingface/trl/issues/2884",
        "https://github.com/huggingface/trl/issues/2976",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
    forks=True,
)


class Reward(grpo.Reward):
    """The share of lower-case letters among the characters: every token contributes."""

    @staticmethod
    def score(text: str) -> float:
        return sum("a" <= letter <= "z" for letter in text) / max(1, len(text))


def run(context: Context) -> Iterator[Reading]:
    """Train three times, and check the final rewards."""
    draw = random.Random(context.seed)
    pieces = {f"run {number}": _piece(context.device, draw.randrange(2**31)) for number in range(1, RUNS + 1)}
    results = side.side_by_side(pieces, context.directory / "runs", gpus=context.device == "cuda")
    side.require(results)
    runs = [(result["rewards"], result["update"]) for result in results.values()]
    curves = [rewards for rewards, _ in runs]
    shown = "; ".join(" ".join(f"{reward:.2f}" for reward in curve) for curve in curves)
    yield Reading("reward_end", statistics.fmean(reward for curve in curves for reward in curve[-END:]), shown)
    yield Reading("reward_start", statistics.fmean(curve[0] for curve in curves), shown)
    updates = [update for _, update in runs]
    errors = [abs(update / LEARNING_RATE - 1) for update in updates]
    yield Reading("first_update_error", extremes.largest(errors), f"the largest first updates are {updates}")


def _piece(device: str, seed: int) -> Callable[[Path, int], dict[str, Any]]:
    return lambda directory, _rank: _train(Context(device, seed, directory))


def _train(context: Context) -> dict[str, Any]:
    """The mean reward of every step, and the largest change of a parameter in the first step."""
    from datasets import Dataset

    reward = Reward()
    trainer = grpo.make_trainer(
        context,
        # How fast a policy learns depends on its first weights more than on anything else here: always the same ones.
        tiny.save(context.directory / "model", seed=0),
        reward,
        train_dataset=Dataset.from_dict({"prompt": [f"say {chr(ord('A') + i)}" for i in range(32)]}),
        max_steps=STEPS,
        per_device_train_batch_size=adapter.batch_of(SEQUENCES, GENERATIONS),
        num_generations=GENERATIONS,
        max_completion_length=4,
        learning_rate=LEARNING_RATE,
        # 0.04 up to TRL 0.16, then 0.
        beta=0.04,
        logging_steps=STEPS,
    )
    before = grpo.snapshot(trainer.model)
    first = [math.nan]

    def measure(step: int) -> None:
        if step == 1:
            first[0] = extremes.largest(
                (now - before[name]).abs().max().item() for name, now in grpo.snapshot(trainer.model).items()
            )

    grpo.at_step_end(trainer, measure)
    trainer.train()
    return {"rewards": [statistics.fmean(batch) for batch in reward.batches], "update": first[0]}
