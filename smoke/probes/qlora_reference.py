"""Does GRPO keep one copy of a 4-bit model with an adapter, and measure the KL divergence against where it started?

It exists for an adapter that is already there when training begins (PeftModel, and no peft_config): TRL 0.14 copies
the whole quantised model as its own reference, which accelerate then refuses to place ("You can't train a model that
has been loaded in 8-bit or 4-bit precision on a different device") or which does not fit; later releases switch the
adapter off in its place, and punish the policy for all that the adapter had learned before.

Hands the trainer a 4-bit model with an adapter that does something, counts the packed weights that are alive, and
trains with a KL penalty. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from smoke import grpo, quantized, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="the run needs twice the memory or is refused, or its penalty pulls back to a model before the adapter",
    bounds=(
        Bound(
            "copies",
            "bytes of packed 4-bit weights alive beside those of the policy, as a share: 1 with a deep copy as reference",
            equals=0,
            headline=True,
        ),
        Bound("kl_at_start", "measure it first, then say", "nats", at_most=1e-3),
        Bound("kl_later", "measure it first, then say", "nats", at_least=1e-3),
        replace(grpo.MOVED, name="adapter_moved"),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/trl/pull/2818",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Count the copies, then train and look at the divergence."""
    import torch
    from peft import get_peft_model

    directory = tiny.save(context.directory / "model", context.seed)
    model = get_peft_model(quantized.load(directory, context.device if context.device == "cpu" else 0), quantized.lora())
    draw = torch.Generator().manual_seed(context.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
    reward = grpo.Reward()
    trainer = grpo.make_trainer(
        context, model, reward, beta=0.04, bf16=True, use_cpu=context.device == "cpu"
    )
    own = {layer.weight.data_ptr(): layer.weight.nbytes for layer in quantized.layers(trainer.model).values()}
    alive = _packed()
    others = sum(size for pointer, size in alive.items() if pointer not in own)
    reference = getattr(trainer, "ref_model", None)
    yield Reading(
        "copies",
        others / sum(own.values()),
        f"{len(alive)} packed weights are alive, {len(own)} belong to the policy; ref_model is {type(reference).__name__}",
    )
    before = grpo.snapshot(trainer.model)
    trainer.train()
    yield from grpo.check(trainer, reward)
    moved = grpo.moved(before, trainer.model)
    yield replace(moved, name="adapter_moved")
    divergences = [entry["kl"] for entry in trainer.state.log_history if "loss" in entry]
    yield Reading("kl_at_start", divergences[0], f"of the steps: {divergences}")
    yield Reading("kl_later", divergences[-1], f"of the steps: {divergences}")


def _packed() -> dict[int, int]:
    """The addresses and bytes of all packed 4-bit weights that are alive."""
    from bitsandbytes.nn import Params4bit

    gc.collect()
    packed = [value for value in gc.get_objects() if isinstance(value, Params4bit) and value.quant_state is not None]
    return {weight.data_ptr(): weight.nbytes for weight in packed}
