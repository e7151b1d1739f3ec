"""Are the gradients of four micro-batches those of one batch?

TODO
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke import adapter, scripted, tiny
from smoke.parity import Expected
from smoke.probe import Bound, Context, Probe, Reading

MICRO_BATCHES = 4
STEPS = 2
LEARNING_RATE = 0.02

PROBE = Probe(
    matters="accumulating gradients would train at another learning rate, or another objective, than a larger batch",
    bounds=(
        Bound("gradient_error", "TODO", at_most=1e-4, headline=True),
        Bound("update_error", "TODO", at_most=1e-3),
    ),
    links=("https://github.com/huggingface/trl/issues/2617",),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """TODO."""
    model = tiny.save(context.directory / "model", context.seed)
    gradients: dict[str, float] = {}
    for objective in scripted.objectives(same_when_divided=True)
