"""Packages and versions as people write them in reports and errors."""

from __future__ import annotations

NAMES = (
    r"trl|vllm|torch|pytorch|transformers|deepspeed|bitsandbytes|peft|accelerate|datasets|unsloth(?:[-_ ]zoo)?"
    r"|triton|numpy|liger[-_ ]kernel|flash[-_ ]attn|xformers|huggingface[-_]hub|tokenizers|flashinfer|ms[-_]swift"
    r"|verl|openrlhf|torchao|torchvision|outlines|xgrammar|ray|pyarrow|pandas|pydantic|protobuf|setuptools|sglang"
    r"|llamafactory|axolotl|compressed[-_]tensors|mistral[-_]common|openai|fsspec|gguf|autoawq"
)
VERSION = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|dev|rc)\d+)?)"
