"""Does vLLM inside the trainer's process stay on the GPU of its rank?

It exists for "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!": vLLM
was started in the trainer's process for one GPU and put some of its tensors on the first.

Trains with vLLM colocated on two ranks, then looks at the device of every tensor that the policy and vLLM hold. Needs
two processes and two GPUs: on a CPU, or on one GPU, there is no wrong device to be on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke import adapter, colocate, grpo, tiny
from smoke.probe import Bound, Context, NotApplicable, Probe, Reading

RANKS = 2

PROBE = Probe(
    matters="training with vLLM dies at the first step, or one GPU runs out of memory while the other has plenty",
    bounds=(
        Bound("policy_elsewhere", "tensors of the policy on another GPU than their rank's", "tensors", equals=0),
        Bound("vllm_elsewhere", "tensors of vLLM on another GPU", "tensors", equals=0, headline=True),
        Bound("vllm_tensors", "without any, nothing would be shown; 26 on the tiny model", "tensors", at_least=10),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2745",
        "https://github.com/huggingface/trl/issues/2851",
        "https://github.com/vllm-project/vllm/pull/13027",
    ),
    needs=("torch", "transformers", "datasets", "trl", "vllm"),
    ranks=RANKS,
    gpus=RANKS,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and gather what is not where it should be."""
    if context.device != "cuda":
        raise NotApplicable(f"needs {RANKS} GPUs")
    import torch.distributed as dist

    colocate.register("qwen2")
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    reward = grpo.Reward()
    trainer = colocate.make_trainer(context, model, reward=reward)
    trainer.train()
    yield from grpo.check(trainer, reward)
    own = trainer.accelerator.device
    vllm = dict(colocate.model_of(adapter.sampler(trainer)).named_parameters())
    mine = (_elsewhere(dict(trainer.model.named_parameters()), own), _elsewhere(vllm, own), len(vllm))
    ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(ranks, mine)
    for name, found in zip(
        ("policy_elsewhere", "vllm_elsewhere"), zip(*(rank[:2] for rank in ranks), strict=True), strict=True
    ):
        said = [f"rank {rank}: {', '.join(tensors)}" for rank, tensors in enumerate(found) if tensors]
        yield Reading(name, sum(map(len, found)), "; ".join(said))
    yield Reading("vllm_tensors", min(rank[2] for rank in ranks))


def _elsewhere(tensors: dict[str, Any], device: Any) -> list[str]:
    return [f"{name} on {tensor.device}" for name, tensor in tensors.items() if tensor.device != device]
