"""Does plain GRPO train: generate, score, step?

It exists for the failures at the very first step that most users met: TRL and Transformers that no longer fit
together although their declared requirements allow it. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from smoke import grpo, tiny
from smoke.probe import Context, Probe, Reading

PROBE = Probe(
    matters="nothing else can be right where the shortest run does not train",
    bounds=(replace(grpo.MOVED, headline=True), *grpo.BOUNDS),
    links=(
        "https://github.com/huggingface/transformers/pull/38226",
        "https://github.com/huggingface/trl/pull/4960",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train, and check that training happened."""
    done = grpo.train(context, tiny.save(context.directory / "model", context.seed))
    yield from grpo.check(done.trainer, done.reward)
    yield grpo.moved(done.before, done.trainer.model)
