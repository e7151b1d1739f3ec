"""Does GRPO keep one copy of a 4-bit model with an adapter, with the KL divergence against its start?

Catches failures with an adapter that exists before training (PeftModel, and no peft_config): TRL 0.14 copies the whole
quantised model as a reference, which accelerate then refuses to place ("You can't train a model that has been loaded in
8-bit or 4-bit precision on a different device") or which does not fit; later releases up to 0.26 switch the adapter off
instead, and penalise the policy for all that the adapter had learned before.

Passes a 4-bit model with an adapter that has an effect to the trainer, counts the packed weights in memory, and trains
with a KL penalty. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from smoke.kit import grpo, quantized, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="the run needs twice the memory or is refused, or its penalty pulls back to the model without the adapter",
    bounds=(
        Bound(
            "copies",
            "bytes of packed 4-bit weights that are alive beside the policy's, as a share of those: 1 when a deep copy "
            "of it is its reference",
            equals=0,
            headline=True,
        ),
        Bound(
            "kl_at_start",
            "of the first step, whose policy is the reference: 0 over 12 seeds, 6.5e-5 with a copy that computes in "
            "another dtype; 0.31 with the model less its adapter as reference",
            "nats",
            at_most=1e-3,
        ),
        Bound(
            "kl_later",
            "of the last step: 0.21 to 0.65 over 12 seeds. Below its bound, the reference is not frozen, or "
            "kl_at_start proves nothing",
            "nats",
            at_least=0.02,
        ),
        grpo.MOVED,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/trl/pull/2818",
        "https://github.com/huggingface/trl/issues/3194",
        "https://github.com/huggingface/trl/pull/4723",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Count the copies, then train and look at the divergence."""
    import torch
    from peft import get_peft_model

    directory = tiny.save(context.directory / "model", context.seed)
    model = get_peft_model(quantized.load(directory, quantized.device(context)), quantized.lora())
    draw = torch.Generator().manual_seed(context.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.2 * torch.randn(parameter.shape, generator=draw))
    trainer = grpo.make_trainer(context, model, grpo.Reward(), beta=0.04, bf16=True, use_cpu=context.device == "cpu")
    own = {layer.weight.data_ptr(): layer.weight.nbytes for layer in quantized.layers(trainer.model).values()}
    alive = _packed()
    others = sum(size for pointer, size in alive.items() if pointer not in own)
    reference = getattr(trainer, "ref_model", None)
    yield Reading(
        "copies",
        others / sum(own.values()),
        f"{len(alive)} packed weights are alive, {len(own)} are the policy's; ref_model is {type(reference).__name__}",
    )
    before = grpo.snapshot(trainer.model)
    trainer.train()
    yield grpo.moved(before, trainer.model)
    divergences = [entry["kl"] for entry in trainer.state.log_history if "loss" in entry]
    yield Reading("kl_at_start", divergences[0], f"of the steps: {divergences}")
    yield Reading("kl_later", divergences[-1], f"of the steps: {divergences}")


def _packed() -> dict[int, int]:
    """The addresses and bytes of all packed 4-bit weights that are alive."""
    from bitsandbytes.nn import Params4bit

    gc.collect()
    # Not isinstance, which asks some objects to load themselves.
    packed = [value for value in gc.get_objects() if type(value) is Params4bit and value.quant_state is not None]
    return {weight.data_ptr(): weight.nbytes for weight in packed}
