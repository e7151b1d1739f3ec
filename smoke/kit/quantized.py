"""Tiny 4-bit models with adapters, as in QLoRA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoke.kit import adapter
from smoke.probe import Context

RANK = 4
ALPHA = 8

# 2 blocks of 7 linear layers; the output layer is never quantised.
LAYERS = 14


def load(directory: Path, device: str | int, dtype: str = "bfloat16", *, double: bool = True) -> Any:
    """The model in `directory` on one device, with linear layers in NF4; `double` quantises their scales too.

    `dtype` is used for all computation and all other weights. By default, transformers 4 would use float16 for the
    weights, and bitsandbytes float32 for computation.
    """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if device == "cpu":
        adapter.allow_4bit_on_cpu()
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_compute_dtype=getattr(torch, dtype),
        bnb_4bit_use_double_quant=double,
    )
    return AutoModelForCausalLM.from_pretrained(
        directory, quantization_config=quantization, device_map={"": device}, **adapter.dtype(dtype)
    )


def device(context: Context) -> str | int:
    """The device for this process's model, as in a device map: the CPU, or the GPU of its rank."""
    return "cpu" if context.device == "cpu" else context.rank


def lora() -> Any:
    """An adapter for every quantised layer. Its B starts at zero: A has no gradient in the first step."""
    from peft import LoraConfig

    return LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")


def float32_adapter(model: Any) -> None:
    """Undo TRL's rounding of the adapter to bfloat16, so that what is left of an error is no rounding."""
    import torch

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)


def snapshot(model: Any) -> dict[str, Any]:
    """Copies of the model's parameters, by name, on the CPU; 4-bit weights decoded, in the shape of their layer."""
    from bitsandbytes.functional import dequantize_4bit
    from bitsandbytes.nn import Params4bit

    return {
        name: (dequantize_4bit(p.data, p.quant_state) if isinstance(p, Params4bit) else p.detach()).cpu().clone()
        for name, p in model.named_parameters()
    }


def layers(model: Any) -> dict[str, Any]:
    """The quantised layers, by name."""
    from bitsandbytes.nn import Linear4bit

    return {name: module for name, module in model.named_modules() if isinstance(module, Linear4bit)}
