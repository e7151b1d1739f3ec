"""Does GRPO train a LoRA adapter on a 4-bit model, and only the adapter?

Catches quantised policies that are refused ("expected scalar type Half but found Float"), and frozen weights that are
silently trained. The tiny model is loaded in NF4 with quantised scales, computes in bfloat16 and is trained with
bf16=True, as in the QLoRA paper. The dtypes of its matrix products are observed at the operators.

Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from smoke.kit import gemms, grpo, quantized, speed, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="a 4-bit run that fails here is refused, loses precision, or trains weights that are never saved",
    bounds=(
        replace(grpo.MOVED, headline=True),
        Bound(
            "layers_4bit",
            "2 blocks of 7 linear layers; the output layer is never quantised",
            "layers",
            equals=quantized.LAYERS,
        ),
        Bound("frozen_changed", "frozen tensors do not change, bit for bit", "tensors", equals=0),
        Bound("gradients_outside", "only the adapter may get gradients", "tensors", equals=0),
        Bound("gradients_adapter", "A and B of 14 layers", "tensors", equals=2 * quantized.LAYERS),
        Bound(
            "products_not_bfloat16",
            "4-bit layers, adapters, attention and output layer all multiply bfloat16; with float32 as compute dtype, "
            "the default of bitsandbytes, 42 products of 4-bit layers do not",
            "products",
            equals=0,
        ),
        *grpo.BOUNDS,
        *speed.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/trl/issues/4634",
        "https://github.com/huggingface/trl/issues/3143",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train the adapter; check that nothing else changed, and record which parameters got gradients."""
    import torch

    model = quantized.load(tiny.save(context.directory / "model", context.seed), quantized.device(context))
    reward = grpo.Reward()
    trainer = grpo.make_trainer(
        context, model, reward, peft_config=quantized.lora(), bf16=True, use_cpu=context.device == "cpu"
    )
    gradients = _note_gradients(trainer)
    policy = trainer.model
    products = gemms.watch(policy)
    layers = quantized.layers(policy).values()
    frozen = _frozen_bits(policy)
    before = grpo.snapshot(policy)
    seconds = speed.watch(context, trainer)
    trainer.train()

    yield from grpo.check(trainer, reward)
    yield grpo.moved(before, policy)
    yield from speed.readings(context, trainer, reward, seconds)
    yield Reading("layers_4bit", sum(layer.weight.dtype == torch.uint8 for layer in layers))
    after = _frozen_bits(policy)
    changed = [name for name in frozen if not torch.equal(frozen[name], after[name])]
    yield Reading("frozen_changed", len(changed), ", ".join(changed))
    outside = sorted(name for name in gradients if "lora_" not in name)
    yield Reading("gradients_outside", len(outside), ", ".join(outside))
    yield Reading("gradients_adapter", len(gradients) - len(outside))
    yield Reading("products_not_bfloat16", gemms.others(products, "bfloat16"), gemms.describe(products))


def _frozen_bits(model: Any) -> dict[str, Any]:
    """All tensors except the adapter, by name: the packed 4-bit weights, their scales, and unquantised weights."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items() if "lora_" not in name}


def _note_gradients(trainer: Any) -> set[str]:
    """The names of the parameters that have a gradient when the optimizer is about to use it, filled while training."""
    from transformers import TrainerCallback

    names: set[str] = set()

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
            names.update(name for name, p in trainer.model.named_parameters() if p.grad is not None)

    trainer.add_callback(Note())
    return names
