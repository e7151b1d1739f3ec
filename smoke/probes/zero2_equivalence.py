"""Does ZeRO-2 take the step that one process would take with all of the batch?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke import parity, tiny, zero
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
MICRO_BATCHES = 2
LEARNING_RATE = 0.2

PROBE = Probe(
    matters="TODO",
    bounds=(
        Bound("update_error", "TODO", at_most=1e-3, headline=True),
        Bound("stage", "that of the running DeepSpeed engine", equals=2),
        Bound("ranks_differ", "TODO", "tensors", equals=0),
        Bound("lost_effect", "TODO", at_least=0.05),
    ),
    links=("https://github.com/huggingface/trl/issues/2617",),
    needs=("torch", "transformers", "datasets", "trl", "deepspeed"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Accumulate, and compare with the reference."""
    # Every rank writes its own copy, from the same seed. Once they know of each other, only the first would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    options = zero.options(context.device, stage=2)
    found = parity.divide(context, model, MICRO_BATCHES, LEARNING_RATE, **options)
    yield Reading("update_error", *parity.tell(found.updates))
    yield Reading("lost_effect", *parity.tell(found.lost, least=True))
    yield Reading("stage", found.model.zero_optimization_stage())
    yield parity.ranks_differ(found.after)
