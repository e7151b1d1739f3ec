"""Does ZeRO-3 take the same step as one process with the whole batch?

Catches updates that are wrong by a factor, which adaptive optimizers hide: DeepSpeed averages over ranks and
micro-batches by itself, and so do the trainer and accelerate unless they know that it does. Also a part of a tensor
that is left out of an update.

Trains two steps of real GRPO under DeepSpeed, with the parameters divided among two ranks with two micro-batches each,
on scripted completions of different lengths. The updates of plain gradient descent, as seen in the gathered parameters,
are compared with those of a reference in plain PyTorch (kit/reference.py) on all completions at once. Needs two
processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import extremes, parity, tiny, zero
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
MICRO_BATCHES = 2
LEARNING_RATE = 0.2

PROBE = Probe(
    matters="a model that needs ZeRO would train at another learning rate than the one tuned without it",
    bounds=(
        Bound(
            "update_error",
            "the relative error of the worst tensor's update: 1.5e-5 to 2.9e-5 over 14 seeds, because it is "
            "small next to the parameters; 0.5 when the loss is scaled for accumulation twice, 1 when gradients are "
            "summed over the ranks",
            at_most=5e-4,
            headline=True,
        ),
        Bound("stage", "that of the DeepSpeed engine that ran", equals=3),
        Bound("ranks_differ", "after training both ranks have the same bits", "tensors", equals=0),
        Bound(
            "lost_effect",
            "what update_error would be, over all tensors, without half of the completions: 0.38 to 0.76 over 14 "
            "seeds. Below its bound, the comparison proves nothing",
            at_least=0.1,
        ),
    ),
    links=(
        "https://github.com/huggingface/transformers/issues/45305",
        "https://github.com/deepspeedai/DeepSpeed/issues/1488",
        "https://github.com/huggingface/trl/issues/4631",
    ),
    needs=("torch", "transformers", "datasets", "trl", "deepspeed"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and compare with the reference."""
    # Every rank writes its own copy, from the same seed: with torch.distributed set up, only rank 0 would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    options = zero.options(context.device, stage=3)
    result = parity.train_divided(context, model, MICRO_BATCHES, LEARNING_RATE, snapshot=_whole, **options)
    yield Reading("update_error", *extremes.outermost(result.updates))
    yield Reading("stage", result.model.zero_optimization_stage())
    yield parity.ranks_differ(result.after)
    yield Reading("lost_effect", *extremes.outermost(result.lost, least=True))


def _whole(model: Any) -> dict[str, Any]:
    return zero.gather(dict(model.named_parameters()))
