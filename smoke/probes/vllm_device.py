"""Does vLLM inside the trainer's process stay on the GPU of its rank?

Catches "Expected all tensors to be on the same device, but found at least two devices, cuda:1 and cuda:0!": vLLM was
started in the trainer's process for one GPU and put some of its tensors on the first.

Trains with vLLM colocated on two ranks, then checks the device of every tensor of the policy and of vLLM, weights and
cache. Needs two processes and two GPUs: on a CPU, or on one GPU, there is no wrong device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from smoke.kit import adapter, colocate, extremes, grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading, Skip

RANKS = 2
NEEDS_GPUS = Skip(f"needs {RANKS} GPUs", device="cpu")
NO_COLOCATION = Skip("this TRL gives vLLM no GPU that it trains on", versions={"trl": "<0.18"})

PROBE = Probe(
    matters="training with vLLM dies at the first step, or one GPU runs out of memory while the other has plenty",
    bounds=(
        Bound(
            "sampler_elsewhere",
            "tensors of vLLM on another device than their rank's: by construction none is",
            "tensors",
            equals=0,
            headline=True,
        ),
        Bound(
            "policy_elsewhere", "tensors of the policy on another device: by construction none is", "tensors", equals=0
        ),
        Bound("gpus", "as many as ranks: if all ranks used the first GPU, no tensor would be elsewhere", equals=RANKS),
        Bound(
            "sampler_tensors",
            "the fewest of vLLM's tensors that a rank could look at; 19 in vLLM 0.31: 17 weights, and the cache of two "
            "layers",
            "tensors",
            at_least=17,
        ),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2745",
        "https://github.com/huggingface/trl/issues/2851",
        "https://github.com/vllm-project/vllm/pull/13027",
    ),
    needs=("torch", "transformers", "datasets", "trl", "vllm"),
    skips=(NEEDS_GPUS, NO_COLOCATION, adapter.SERVER_ONLY),
    ranks=RANKS,
    gpus=RANKS,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Train on both ranks, and list the tensors on a wrong device."""
    if context.device != "cuda":
        raise NEEDS_GPUS()
    if "vllm_mode" not in adapter.known_options():
        raise NO_COLOCATION()
    import torch
    import torch.distributed as dist

    colocate.register("qwen2")
    # Every rank writes its own copy, from the same seed: with torch.distributed set up, only rank 0 would write.
    model = tiny.save(context.directory / f"model-{context.rank}", context.seed)
    reward = grpo.Reward()
    with colocate.engine_once(context):
        trainer = colocate.make_trainer(context, model, reward=reward)
    trainer.train()
    yield from grpo.check(trainer, reward)
    own = torch.empty(0, device=trainer.accelerator.device).device  # with its number, also where that is the default
    policy = dict(trainer.model.named_parameters())
    sampler = colocate.tensors(adapter.sampler(trainer))
    ranks: list[Any] = [None] * RANKS
    dist.all_gather_object(ranks, (str(own), _elsewhere(policy, own), _elsewhere(sampler, own), len(sampler)))
    gpus, of_policy, of_sampler, counts = zip(*ranks, strict=True)
    yield Reading("gpus", len(set(gpus)), f"ranks on {gpus}")
    yield Reading("policy_elsewhere", sum(map(len, of_policy)), f"by rank: {of_policy}")
    yield Reading("sampler_elsewhere", sum(map(len, of_sampler)), f"by rank: {of_sampler}")
    yield Reading("sampler_tensors", extremes.smallest(counts), f"by rank: {counts}")


def _elsewhere(tensors: dict[str, Any], device: Any) -> list[str]:
    return [f"{name} on {tensor.device}" for name, tensor in tensors.items() if tensor.device != device]
