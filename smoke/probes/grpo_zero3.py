"""Does GRPO train under DeepSpeed ZeRO-3, with the parameters really divided among two ranks?

It exists for the failures of generation under ZeRO-3, where the parameters have to be gathered and their hooks taken
off and put back ("object has no attribute 'optimizer'", "no attribute '_register_hooks_recursively'", tensors of
length 1034 and 1035), and for ranks that drift apart. Needs two processes; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from smoke import grpo, tiny, zero
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2

PROBE = Probe(
    matters="what fails here cannot train a model larger than one GPU, or trains a different one on each",
    bounds=(
        replace(grpo.MOVED, headline=True),
        Bound("whole_parameters", "each rank holds a part of every tensor", "tensors", equals=0),
        Bound("share_held", "every tensor has an even number of elements: half of it", equals=0.5),
        Bound("ranks_differ", "both ranks gather the same bits", "tensors", equals=0),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2782",
        "https://github.com/huggingface/trl/issues/2962",
        "https://github.com/huggingface/trl/issues/2851",
        "https://github.com/deepspeedai/DeepSpeed/issues/8072",
    ),
    needs=("torch", "transformers", "datasets", "trl", "deepspeed"),
    ranks=RANKS,
    gpus=RANKS,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, then look at what each holds and what they gather."""
    import torch
    import torch.distributed as dist

    # Every rank writes its own copy, from the same seed. Once they know of each other, only the first would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    reward = grpo.Reward()
    before = grpo.snapshot(tiny.make_model(context.seed))
    trainer = grpo.make_trainer(context, model, reward, **zero.options(context.device))
    trainer.train()
    yield from grpo.check(trainer, reward)

    parameters = dict(trainer.model_wrapped.module.named_parameters())
    whole = [name for name, p in parameters.items() if p.numel() >= p.ds_numel]
    yield Reading("whole_parameters", len(whole), ", ".join(whole))
    held = sum(p.ds_tensor.numel() for p in parameters.values())
    yield Reading("share_held", held / sum(p.ds_numel for p in parameters.values()))

    gathered = zero.gather(parameters)
    still = [name for name in gathered if torch.equal(gathered[name], before[name])]
    yield Reading("parameters_moved", 1 - len(still) / len(gathered), ", ".join(still))
    others: list[Any] = [None] * RANKS
    dist.all_gather_object(others, gathered)
    differ = [name for name in gathered if not torch.equal(others[0][name], others[1][name])]
    yield Reading("ranks_differ", len(differ), ", ".join(differ))
