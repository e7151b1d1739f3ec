"""Does plain GRPO train: generate, score, step?

Catches the failures at the very first step that most users meet: TRL and Transformers that do not work together
although their declared requirements allow it. And runs that end too early: if the prompts do not divide into full
batches, a sampler that counts the batch that it drops loses a step in every epoch. Needs one process; on a GPU, one
GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from smoke.kit import adapter, grpo, speed, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="if the shortest run does not train, nothing else can be right",
    bounds=(
        replace(grpo.MOVED, headline=True),
        Bound(
            "steps_left_out",
            f"of {grpo.STEPS}, with three prompts and batches of two: 0 over 12 seeds; 1 if the sampler reports two "
            "batches per epoch, but has one",
            "steps",
            equals=0,
        ),
        *grpo.BOUNDS,
        *speed.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/transformers/pull/38226",
        "https://github.com/huggingface/trl/pull/4960",
        "https://github.com/huggingface/trl/issues/3477",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, and check that training happened."""
    model = tiny.save(context.directory / "model", context.seed)
    reward = grpo.Reward()
    trainer = grpo.make_trainer(context, model, reward)
    seconds = speed.watch(context, trainer)
    before = grpo.snapshot(trainer.model)
    trainer.train()
    yield from grpo.check(trainer, reward)
    yield grpo.moved(before, trainer.model)
    yield from speed.readings(context, trainer, reward, seconds)
    size = adapter.batch_of(2 * grpo.GENERATIONS, grpo.GENERATIONS)
    few = grpo.train(context, model, train_dataset=tiny.make_prompts(3), per_device_train_batch_size=size)
    taken = few.trainer.state.global_step
    yield Reading("steps_left_out", grpo.STEPS - taken, f"it ended after {taken} of {grpo.STEPS} steps")
