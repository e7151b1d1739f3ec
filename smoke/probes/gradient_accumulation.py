"""Are the gradients of four micro-batches those of one batch?

Catches losses that are scaled for accumulation twice or not at all, because the trainer and its base class disagree
about whose task it is, and means over the content of a single micro-batch. The learning rate then effectively depends
on the number of micro-batches.

Trains two steps of real GRPO with four micro-batches on scripted completions of different lengths, and compares
gradients and updates with those of a reference in plain PyTorch (kit/reference.py) on all completions at once. Tries
every mean that does not depend on how a batch is divided: per sequence (grpo), over the tokens of the whole batch
(dapo), over a constant (dr_grpo). Completions of one prompt are spread over several micro-batches where TRL allows it.
Needs one process.
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.kit import extremes, parity, tiny
from smoke.probe import Bound, Context, Probe, Reading

MICRO_BATCHES = 4
LEARNING_RATE = 0.2

PROBE = Probe(
    matters="gradient accumulation would train at another learning rate, or another objective, than a larger batch",
    bounds=(
        Bound(
            "gradient_error",
            "the relative error of the worst tensor's gradient: 1.1e-6 to 5.9e-6 over 36 seeds, the "
            "rounding of float32; 0.75 when the loss is scaled twice",
            at_most=1e-4,
            headline=True,
        ),
        Bound(
            "update_error",
            "the same for what plain gradient descent took off the parameters: 2.6e-5 to 7.3e-5 over 36 seeds, because "
            "it is small next to them; 0.75 when the loss is scaled twice",
            at_most=5e-4,
        ),
        Bound(
            "lost_effect",
            "gradient_error, over all tensors, without half of the completions: 0.37 to 0.84 over 36 seeds. Below its "
            "bound, the comparison proves nothing",
            at_least=0.1,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2617",
        "https://github.com/huggingface/transformers/issues/40052",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train in micro-batches, and compare with the reference."""
    model = tiny.save(context.directory / "model", context.seed)
    result = parity.train_divided(context, model, MICRO_BATCHES, LEARNING_RATE)
    yield Reading("gradient_error", *extremes.outermost(result.gradients))
    yield Reading("update_error", *extremes.outermost(result.updates))
    yield Reading("lost_effect", *extremes.outermost(result.lost, least=True))
