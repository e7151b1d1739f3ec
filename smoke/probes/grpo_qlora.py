"""Does GRPO train a LoRA adapter on a 4-bit model, and only the adapter?

It exists for quantised policies that are refused ("You can't train a model that has been loaded in 8-bit or 4-bit
precision on a different device"), deep-copied as their own reference model, or quietly trained where they should be
frozen. Loads the tiny model in NF4 through bitsandbytes. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from smoke import grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="a 4-bit run that fails here is refused, holds the model twice, or trains weights that are saved nowhere",
    bounds=(
        replace(grpo.MOVED, headline=True),
        Bound("layers_4bit", "2 blocks of 7 linear layers; the output layer is never quantised", "layers", equals=14),
        Bound("frozen_changed", "what is frozen stays as it is, bit for bit", "tensors", equals=0),
        Bound("gradients_outside", "only the adapter may get gradients", "tensors", equals=0),
        Bound("gradients_adapter", "A and B of 14 layers", "tensors", equals=28),
        *grpo.BOUNDS,
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/trl/pull/2818",
        "https://github.com/huggingface/transformers/pull/45407",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    gpus=1,
)


def run(context: Context) -> Iterator[Reading]:
    """Train the adapter; compare everything else with what it was, and note who got gradients."""
    import torch
    from bitsandbytes.nn import Linear4bit
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
    )
    model = AutoModelForCausalLM.from_pretrained(
        tiny.save(context.directory / "model", context.seed),
        quantization_config=quantization,
        device_map={"": "cpu" if context.device == "cpu" else 0},
    )
    reward = grpo.Reward()
    # B starts at zero, so that A gets no gradient in the first step; from the second on both move.
    lora = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    trainer = grpo.make_trainer(context, model, reward, peft_config=lora)
    gradients = _note_gradients(trainer)
    policy = trainer.model
    layers = [module for module in policy.modules() if isinstance(module, Linear4bit)]
    frozen = _frozen_bits(policy)
    before = grpo.snapshot(policy)
    trainer.train()

    yield from grpo.check(trainer, reward)
    yield grpo.moved(before, policy)
    yield Reading("layers_4bit", sum(layer.weight.dtype == torch.uint8 for layer in layers))
    after = _frozen_bits(policy)
    changed = [name for name in frozen if not torch.equal(frozen[name], after[name])]
    yield Reading("frozen_changed", len(changed), ", ".join(changed))
    outside = sorted(name for name in gradients if "lora_" not in name)
    yield Reading("gradients_outside", len(outside), ", ".join(outside))
    yield Reading("gradients_adapter", len(gradients) - len(outside))


def _frozen_bits(model: Any) -> dict[str, Any]:
    """Everything but the adapter, by name: the packed 4-bit weights, their scales, and what is not quantised."""
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
