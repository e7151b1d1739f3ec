"""Does GRPO train under DeepSpeed ZeRO-3, with the parameters really divided among two ranks?

Catches failures of generation under ZeRO-3, where parameters have to be gathered and their hooks removed and put back
("object has no attribute 'optimizer'", "no attribute '_register_hooks_recursively'", tensors of length 1034 and 1035),
and ranks that drift apart.

Trains three steps, then evaluates. The logits that the first step and the evaluation sampled from are compared with
those of whole weights: the ones before the first step, and those gathered at the end. Needs two processes; on GPUs, two
of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from smoke.kit import extremes, grpo, tiny, zero
from smoke.kit.rollout import Recorder
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2

PROBE = Probe(
    matters="a stack that fails here cannot train a model larger than one GPU, or trains a different one on each",
    bounds=(
        replace(grpo.MOVED, headline=True),
        Bound("whole_parameters", "each rank holds a part of every tensor", "tensors", equals=0),
        Bound("share_held", "every tensor has an even number of elements: half of it", equals=0.5),
        Bound("ranks_differ", "both ranks gather the same bits", "tensors", equals=0),
        Bound(
            "first_generation_diff",
            "between the log-probabilities that the first step sampled from and those of the whole weights, at most; "
            "1.4e-6 to 2.9e-6 over 12 seeds, the rounding of float32",
            "nats",
            at_most=1e-4,
        ),
        Bound("last_generation_diff", "the same of the evaluation, after all updates", "nats", at_most=1e-4),
        Bound(
            "update_effect",
            "last_generation_diff if the evaluation sampled from the weights before the first step: 4.0 to 5.8 over 12 "
            "seeds. Below its bound, it proves nothing",
            "nats",
            at_least=0.1,
        ),
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
    """Train on both ranks, then check the part of each rank and the gathered weights."""
    import torch
    import torch.distributed as dist

    # Every rank writes its own copy, from the same seed: with torch.distributed set up, only rank 0 would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    reward = grpo.Reward()
    policy = tiny.make_model(context.seed).eval()  # whole, so before the trainer turns ZeRO-3 on
    before = grpo.snapshot(policy)
    trainer = grpo.make_trainer(
        context,
        model,
        reward,
        eval_dataset=tiny.make_prompts(2),
        per_device_eval_batch_size=grpo.GENERATIONS,
        **zero.options(context.device),
    )
    recorder = Recorder(trainer, scores=True)
    trainer.train()
    yield from grpo.check(trainer, reward)

    # Before anything gathers them: afterwards even a parameter that training keeps whole is divided again.
    parameters = dict(trainer.model_wrapped.module.named_parameters())
    whole = [name for name, p in parameters.items() if p.numel() >= p.ds_numel]
    yield Reading("whole_parameters", len(whole), ", ".join(whole))
    local = sum(p.ds_tensor.numel() for p in parameters.values())
    yield Reading("share_held", local / sum(p.ds_numel for p in parameters.values()))

    trainer.evaluate()
    gathered = zero.gather(parameters)
    still = [name for name in gathered if torch.equal(gathered[name], before[name])]
    yield Reading("parameters_moved", 1 - len(still) / len(gathered), ", ".join(still))
    first, update = recorder.generations[0].diff(policy), recorder.generations[-1].diff(policy)
    policy.load_state_dict(gathered)
    last = recorder.generations[-1].diff(policy)
    others: list[Any] = [None] * RANKS
    dist.all_gather_object(others, (gathered, first, last, update))
    wholes, firsts, lasts, updates = zip(*others, strict=True)
    yield Reading("first_generation_diff", extremes.largest(firsts), f"of the ranks {firsts}")
    yield Reading("last_generation_diff", extremes.largest(lasts), f"of the ranks {lasts}")
    yield Reading("update_effect", extremes.smallest(updates), f"of the ranks {updates}")
    differ = [name for name in gathered if not torch.equal(wholes[0][name], wholes[1][name])]
    yield Reading("ranks_differ", len(differ), ", ".join(differ))
