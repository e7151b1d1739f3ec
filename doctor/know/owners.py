"""Which package a class, a frame of a traceback or a copy of sources belongs to."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

from doctor.base import aliases

LONGEST = 200_000  # characters of a log, from its end, whose frames are looked at

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


FILE = re.compile(
    r"File \"?(?P<file>[^\"\n]{1,500}?)\"?,? line (?P<line>\d+)"
    r"|File (?P<here><ipython-input[^>\n]*>|[^\s:\"]{1,500}\.py):(?P<at>\d+)"
    r"|Cell In ?\[(?P<cell>\d+)\],? line (?P<row>\d+)"
)
OTHERS = re.compile(r"/lib/python\d|^<(?!ipython|stdin)|/(?:bin|scripts)/(?:torchrun|accelerate|deepspeed)$")
# Folders of a clone whose files are run, not imported.
RUN = ("examples", "example", "scripts", "script", "recipes", "tests", "test", "notebooks", "docs")


class Frame(NamedTuple):
    """The last place that a traceback passed through: the package of the file; none, where it is the user's own."""

    file: str
    line: str
    package: str | None

    @property
    def words(self) -> str:
        """The place for people."""
        return f"line {self.line} of {self.file}"


def of_class(name: str | None) -> str | None:
    """The package of a class, where its name says so."""
    return next((package for pattern, package in CLASSES if name and pattern.fullmatch(name)), None)


def frames(text: str) -> list[str]:
    """The package of every frame of the tracebacks in a text, in their order."""
    return [aliases.of_module(module) for module in FRAME.findall(text)]


def last_frame(text: str, packages: Container[str]) -> Frame | None:
    """The last frame of a text, of one of these packages or of the user's; None where there is none, or is Python's."""
    matches = list(FILE.finditer(text[-LONGEST:]))
    if not matches:
        return None
    match = matches[-1]
    if match["cell"]:
        return Frame(f"cell {match['cell']}", match["row"], None)
    file, line = match["file"] or match["here"], match["line"] or match["at"]
    path = file.replace("\\", "/")
    if installed := FRAME.search(path):
        return Frame(file, line, aliases.of_module(installed["package"]))
    if OTHERS.search(path):
        return None
    if "unsloth_compiled_cache" in file:  # which Unsloth writes beside the script
        return Frame(file, line, "unsloth")
    folders = path.split("/")[:-1]
    for folder, inner in zip(folders, folders[1:]):  # a clone that is imported: src/llamafactory/train/…
        if inner not in RUN and aliases.of_module(folder) in packages:
            return Frame(file, line, aliases.of_module(folder))
    return Frame(file, line, None)
