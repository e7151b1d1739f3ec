"""Which package a class, a frame of a traceback or a copy of sources belongs to."""

from __future__ import annotations

import re

from doctor.base import aliases

FRAME = re.compile(r"(?:site|dist)-packages/(?P<package>\w+)[/.]")
# Packages that an error may name even when no version of them was given.
STACK = (
    "torch", "numpy", "vllm", "deepspeed", "triton", "unsloth", "unsloth-zoo", "bitsandbytes", "liger-kernel",
    "flash-attn", "flashinfer-python", "xformers", "torchvision", "torchao", "pydantic", "ms-swift", "tokenizers",
    "compressed-tensors", "autoawq", "auto-gptq", "xgrammar", "outlines",
)  # fmt: skip
# Packages that are released together.
TOGETHER = {"unsloth-zoo": "unsloth", "unsloth": "unsloth-zoo"}
# Packages that rewrite the sources of others, or carry copies of them.
REWRITES = ("unsloth", "unsloth-zoo", "verl", "ms-swift", "llamafactory", "axolotl", "openrlhf")
# Classes whose name says which package they are of.
CLASSES = (
    (re.compile(r"(GRPO|DPO|SFT|PPO|RLOO|KTO|ORPO|CPO|GKD|OnlineDPO|Reward)(Trainer|Config)"
                r"|ScriptArguments|ModelConfig|VLLMClient"), "trl"),
    (re.compile(r"(Seq2Seq)?Trainer|(Seq2Seq)?TrainingArguments|GenerationConfig|GenerationMixin|BitsAndBytesConfig"
                r"|PreTrained\w+|\w+ForCausalLM|\w+Tokenizer(Fast)?|DynamicCache"), "transformers"),
    (re.compile(r"Accelerator(State)?|DeepSpeedPlugin|FullyShardedDataParallelPlugin"), "accelerate"),
    (re.compile(r"Lora(Config|Layer|Model)|Peft\w+"), "peft"),
    (re.compile(r"(Async)?LLM(Engine)?|(Async)?EngineArgs|VllmConfig|GPUModelRunner|EngineCore\w*|GPUWorker"
                r"|SamplingParams|(GuidedDecoding|StructuredOutputs)Params"), "vllm"),
    (re.compile(r"DeepSpeed\w+"), "deepspeed"),
)  # fmt: skip


def of_class(name: str | None) -> str | None:
    """The package of a class, where its name says so."""
    return next((package for pattern, package in CLASSES if name and pattern.fullmatch(name)), None)


def frames(text: str) -> list[str]:
    """The package of every frame of the tracebacks in a text, in their order."""
    return [aliases.of_module(module) for module in FRAME.findall(text)]
