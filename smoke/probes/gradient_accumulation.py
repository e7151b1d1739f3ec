"""Are the gradients of four micro-batches those of one batch?

TODO
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke import parity, tiny
from smoke.probe import Bound, Context, Probe, Reading

MICRO_BATCHES = 4
LEARNING_RATE = 0.2

PROBE = Probe(
    matters="accumulating gradients would train at another learning rate, or another objective, than a larger batch",
    bounds=(
        Bound("gradient_error", "TODO", at_most=1e-4, headline=True),
        Bound("update_error", "TODO", at_most=1e-3),
        Bound("lost_effect", "TODO", at_least=0.05),
    ),
    links=("https://github.com/huggingface/trl/issues/2617",),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Accumulate, and compare with the reference."""
    model = tiny.save(context.directory / "model", context.seed)
    found = parity.divide(context, model, MICRO_BATCHES, LEARNING_RATE)
    yield Reading("gradient_error", *parity.tell(found.gradients))
    yield Reading("update_error", *parity.tell(found.updates))
    yield Reading("lost_effect", *parity.tell(found.lost, least=True))
