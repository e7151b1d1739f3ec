"""Does the reward rise, as fast as it should?

It exists for training that runs, with finite losses and gradients, and learns nothing or the wrong thing: advantages
that are zero or have the wrong sign, a learning rate that does not reach the optimizer, completions that are scored at
the wrong positions, a KL penalty that holds the policy where it was.

Three short runs from one tiny policy, each with its own order of the data and its own samples. The reward is the share
of lower-case letters in a completion, which any policy can learn within ten steps. Where it ends is compared with
where it ends in a good stack, and the very first update, in which AdamW moves a parameter by the learning rate or less,
with the learning rate. AdamW hides the scale of the gradient: a loss that is twice too large or small shows elsewhere,
not here. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from typing import Any

from smoke import adapter, grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

RUNS = 3
STEPS = 10
END = 3  # steps whose rewards count as where a run ends
GENERATIONS = 8
SEQUENCES = 128
LEARNING_RATE = 6e-3

PROBE = Probe(
    matters="a run whose reward does not rise has cost its GPU hours for nothing",
    bounds=(
        Bound(
            "reward_end",
            "TODO",
            at_least=0.82,
            headline=True,
        ),
        Bound("reward_start", "TODO", at_most=0.35),
        Bound("first_update_error", "TODO", at_most=1e-3),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2770",
        "https://github.com/huggingface/trl/issues/3683",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train three times, and compare where the rewards end."""
    # How fast a policy learns depends on its first weights more than on anything else here: always the same ones.
    model = tiny.save(context.directory / "model", seed=0)
    draw = random.Random(context.seed)
    runs = [_train(context, model, draw.randrange(2**31)) for _ in range(RUNS)]
    curves = [rewards for rewards, _ in runs]
    shown = "; ".join(" ".join(f"{reward:.2f}" for reward in curve) for curve in curves)
    yield Reading("reward_end", statistics.fmean(reward for curve in curves for reward in curve[-END:]), shown)
    yield Reading("reward_start", statistics.fmean(curve[0] for curve in curves), shown)
    updates = [update for _, update in runs]
    errors = [abs(update / LEARNING_RATE - 1) for update in updates]
    yield Reading("first_update_error", max(errors), f"the largest first updates are {updates}")


def _train(context: Context, model: Any, seed: int) -> tuple[list[float], float]:
    """The mean reward of every step, and how far the first of them moved the parameter that it moved most."""
    from datasets import Dataset

    reward = grpo.Reward()
    trainer = grpo.make_trainer(
        context,
        model,
        reward,
        train_dataset=Dataset.from_dict({"prompt": [f"say {letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]}),
        seed=seed,
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
            first[0] = max(
                (now - before[name]).abs().max().item() for name, now in grpo.snapshot(trainer.model).items()
            )

    grpo.at_step_end(trainer, measure)
    trainer.train()
    return [statistics.fmean(batch) for batch in reward.batches], first[0]
