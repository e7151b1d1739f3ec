"""Do two ranks take the step that one process would take with all of the batch?

TODO
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke import parity, tiny
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
MICRO_BATCHES = 2
LEARNING_RATE = 0.2

PROBE = Probe(
    matters="TODO",
    bounds=(
        Bound("gradient_error", "TODO", at_most=1e-4, headline=True),
        Bound("update_error", "TODO", at_most=1e-3),
        Bound("ranks_differ", "TODO", "tensors", equals=0),
        Bound("lost_effect", "TODO", at_least=0.05),
    ),
    links=("https://github.com/huggingface/trl/issues/2617",),
    needs=("torch", "transformers", "datasets", "trl"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Accumulate, and compare with the reference."""
    # Every rank writes its own copy, from the same seed. Once they know of each other, only the first would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    # Without it, the trainer takes several processes on CPUs for one.
    options: dict[str, Any] = {"use_cpu": True} if context.device == "cpu" else {}
    found = parity.divide(context, model, MICRO_BATCHES, LEARNING_RATE, **options)
    yield Reading("gradient_error", *parity.tell(found.gradients))
    yield Reading("update_error", *parity.tell(found.updates))
    yield Reading("lost_effect", *parity.tell(found.lost, least=True))
    import torch.distributed as dist

    print("world", dist.get_world_size(), dist.get_backend())
    yield parity.ranks_differ(found.after)
