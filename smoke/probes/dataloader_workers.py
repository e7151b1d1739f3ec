"""Do worker processes load the same prompts in the same order as the trainer itself?

Catches failures of `dataloader_num_workers` in GRPO's own data loader: it crashed at the first step when transformers
changed the arguments of a worker's initialisation, and its sampler, which has to repeat each prompt for a whole group,
has silently repeated and dropped prompts. Also workers that draw the same random numbers, and workers that never exit,
both as old as DataLoader.

Runs two epochs over a few prompts three times, with gradient accumulation: without workers, with two, and with two that
persist between the epochs. Every row records which process loaded it and which random numbers that process drew; the
reward function, which gets all rows, collects them. Needs one process, which forks the workers; on a GPU, one GPU.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading
from smoke.run import linux

WORKERS = 2
EPOCHS = 2
GENERATIONS = 4
# Two groups in each of three micro-batches are a step: two steps an epoch. Since 0.18, TRL uses the first of as many
# loaded batches as a step has micro-batches: an even number, and one of two workers would load none of them.
GROUPS, MICRO_BATCHES = 2, 3
PROMPTS = [f"say {letter}" for letter in "abcdefghijkl"]
# How long a worker may take to exit.
END_S = 5.0

PROBE = Probe(
    matters="prompts that are dropped, repeated or split among groups make training wrong without an error",
    bounds=(
        Bound(
            "rows_differ",
            "rows of 192 whose prompt is not the one that a run without workers has there: the sampler, which knows "
            "nothing of workers, gives the order, so none; 190 when workers bring a sampler of their own",
            "rows",
            equals=0,
            headline=True,
        ),
        Bound(
            "prompts_wrong",
            "prompts that do not have exactly one group in an epoch, and groups of several prompts: none; 48 when the "
            "sampler draws prompts with replacement",
            "prompts and groups",
            equals=0,
        ),
        Bound(
            "workers_used",
            "different processes that loaded rows: two anew in each epoch, and two that persist; fewer, and the other "
            "numbers say little",
            "processes",
            equals=WORKERS * (EPOCHS + 1),
        ),
        Bound(
            "draws_repeated",
            "first random numbers, and seeds of torch, that several workers of a run have: none; 9 when all have one "
            "seed in an epoch",
            "numbers",
            equals=0,
        ),
        Bound(
            "workers_left",
            f"child processes {END_S:g} s after the last trainer is gone: none; 6 when a loader does not end them",
            "processes",
            equals=0,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3544",
        "https://github.com/huggingface/trl/pull/3568",
        "https://github.com/huggingface/trl/issues/3675",
        "https://github.com/pytorch/pytorch/issues/1355",
        "https://github.com/pytorch/pytorch/issues/5059",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
    timeout_s=90,
)


class _RowReward(grpo.Reward):
    """The usual reward, which also records the rows' prompts, and the processes that loaded them with their draws."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []
        self.draws: dict[int, tuple[float, ...]] = {}

    def __call__(self, completions: list[Any], **columns: Any) -> list[float]:
        self.prompts += columns["prompts"]
        self.draws.update(zip(columns["loader"], map(tuple, columns["draws"]), strict=True))
        return super().__call__(completions)


def run(context: Context) -> Iterator[Reading]:
    """Train with and without workers, and compare what was trained on."""
    before = linux.descendants(os.getpid())
    model = tiny.save(context.directory / "model", context.seed)
    alone = _train(context, model)
    rewards = {
        f"{WORKERS} workers": _train(context, model, dataloader_num_workers=WORKERS),
        f"{WORKERS} persistent workers": _train(
            context, model, dataloader_num_workers=WORKERS, dataloader_persistent_workers=True
        ),
    }
    left = _left(before)

    differ = [
        f"row {i} with {name}: {theirs!r} instead of {ours!r}"
        for name, reward in rewards.items()
        for i, (ours, theirs) in enumerate(itertools.zip_longest(alone.prompts, reward.prompts))
        if ours != theirs
    ]
    yield Reading("rows_differ", len(differ), "; ".join(differ[:4]))
    wrong = [
        f"{what} with {name}" for name, reward in {"no worker": alone, **rewards}.items() for what in _wrong(reward)
    ]
    yield Reading("prompts_wrong", len(wrong), "; ".join(wrong[:4]))
    loaders = {name: reward.draws.keys() - {os.getpid()} for name, reward in rewards.items()}
    used = "; ".join(f"{len(pids)} with {name}" for name, pids in loaders.items())
    yield Reading("workers_used", sum(map(len, loaders.values())), used)
    repeated = [f"{what} with {name}" for name, reward in rewards.items() for what in _repeated(reward)]
    yield Reading("draws_repeated", len(repeated), "; ".join(repeated[:4]))
    yield Reading("workers_left", len(left), f"of {used}: {sorted(left)}")


def _train(context: Context, model: Any, **options: Any) -> _RowReward:
    """Train, and return the recorded rows. The trainer is freed."""
    from datasets import Dataset

    reward = _RowReward()
    trainer = grpo.make_trainer(
        context,
        model,
        reward,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}).with_transform(_load),
        max_steps=-1,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=adapter.batch_of(GROUPS * GENERATIONS, GENERATIONS),
        gradient_accumulation_steps=MICRO_BATCHES,
        num_generations=GENERATIONS,
        max_completion_length=2,
        **options,
    )
    trainer.train()
    return reward


def _load(rows: dict[str, list[str]]) -> dict[str, list[Any]]:
    """Add to the rows the process that loads them, and the first random numbers that it draws."""
    count = len(rows["prompt"])
    return {**rows, "loader": [os.getpid()] * count, "draws": [_draw(os.getpid())] * count}


@functools.cache
def _draw(_process: int) -> list[float]:
    """A number from each random generator of this process; only the seed of torch's, which the trainer samples with."""
    import numpy as np
    import torch

    return [random.random(), np.random.random(), torch.initial_seed()]


def _wrong(reward: _RowReward) -> Iterator[str]:
    """What is wrong with the groups and the epochs of a run."""
    groups = [reward.prompts[i : i + GENERATIONS] for i in range(0, len(reward.prompts), GENERATIONS)]
    for i, group in enumerate(groups):
        if len(group) != GENERATIONS or len(set(group)) != 1:
            yield f"group {i} is {group}"
    for epoch in range(EPOCHS):
        counts = Counter(group[0] for group in groups[epoch * len(PROMPTS) : (epoch + 1) * len(PROMPTS)])
        for prompt in PROMPTS:
            if counts[prompt] != 1:
                yield f"{prompt!r} has {counts[prompt]} groups in epoch {epoch + 1}"
    if len(groups) > EPOCHS * len(PROMPTS):
        yield f"{len(groups)} groups in all"


def _repeated(reward: _RowReward) -> Iterator[str]:
    """First numbers that several processes drew."""
    for name, numbers in zip(("random", "NumPy", "torch"), zip(*reward.draws.values(), strict=True), strict=True):
        for number, count in Counter(numbers).items():
            if count > 1:
                yield f"{count} processes drew {number} from {name}"


def _left(before: set[int]) -> set[int]:
    """The child processes that still run although no trainer needs them."""
    import gc

    gc.collect()
    deadline = time.monotonic() + END_S
    while (left := linux.descendants(os.getpid()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
