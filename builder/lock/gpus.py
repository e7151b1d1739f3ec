"""Which GPU runs which stack, from the kernels of its libraries. Nothing here ran on a GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from builder.lock import architecture
from builder.lock.architecture import Capability, Verdict
from builder.lock.kernels import Kernels


@dataclass(frozen=True)
class Gpu:
    """Models of one compute capability. `models`: words that their names in a certificate contain."""

    title: str
    capability: Capability
    models: tuple[str, ...]
    arm: bool = False  # its hosts have Arm processors

    @property
    def number(self) -> str:
        return ".".join(map(str, self.capability))


# https://developer.nvidia.com/cuda-gpus
GPUS = (
    Gpu("V100", (7, 0), ("V100",)),
    Gpu("T4", (7, 5), ("T4",)),
    Gpu("A100", (8, 0), ("A100",)),
    Gpu("A10, RTX 3090", (8, 6), ("A10", "RTX 3090")),
    Gpu("L4, RTX 4090", (8, 9), ("L4", "RTX 4090")),
    Gpu("H100, H200, H20", (9, 0), ("H100", "H200", "H20")),
    Gpu("B200", (10, 0), ("B200",)),
    Gpu("B300, GB300", (10, 3), ("B300", "GB300")),
    Gpu("RTX 5090, RTX PRO 6000", (12, 0), ("RTX 5090", "RTX PRO 6000")),
    Gpu("DGX Spark", (12, 1), ("GB10",), arm=True),
)


@dataclass(frozen=True)
class Part:
    """A library of a stack. `needed`: no run works without it. `chosen`: vLLM has others in its place."""

    title: str
    distribution: str
    path: str  # a regular expression; {cuda} is the CUDA version without its dot
    needed: bool = False
    chosen: bool = False


PARTS = (
    Part("torch", "torch", r"torch/lib/libtorch_cuda\.so", needed=True),
    Part("vllm", "vllm", r"vllm/_C(_stable_libtorch)?\.abi3\.so", needed=True),
    Part("bitsandbytes", "bitsandbytes", r"bitsandbytes/libbitsandbytes_cuda{cuda}\.so"),
    Part("FlashAttention 2 in vllm", "vllm", r"vllm/vllm_flash_attn/_vllm_fa2_C\.abi3\.so", chosen=True),
    Part("FlashAttention 3 in vllm", "vllm", r"vllm/vllm_flash_attn/_vllm_fa3_C\.abi3\.so", chosen=True),
    Part("linear algebra of torch", "torch", r"torch/lib/libtorch_cuda_linalg\.so"),
    Part("NCCL", "nvidia-nccl-cu[0-9]+", r"nvidia/nccl/lib/libnccl\.so\.2"),
)

# Distributions whose kernels are compiled on the machine, for its GPU, when they are first used.
COMPILED = ("triton", "flashinfer-python", "deepspeed")


def architectures(kernels: Kernels) -> dict[str, list[str]]:
    """Part -> the architectures that most of its kernels are there for. Parts that the lock does not have are left out.

    A needed part that is locked without a library that we know has none: that is a mistake here, and shows as absent.
    """
    known = {}
    distributions = {library.distribution for library in kernels.libraries}
    for part in PARTS:
        pattern = part.path.replace("{cuda}", kernels.cuda.replace(".", ""))
        matches = [
            library
            for library in kernels.libraries
            if re.fullmatch(part.distribution, library.distribution) and re.fullmatch(pattern, library.path)
        ]
        if matches:
            known[part.title] = matches[0].architectures
        elif part.needed and part.distribution in distributions:
            known[part.title] = []
    return known


def verdicts(parts: Mapping[str, list[str]], capability: Capability) -> dict[str, Verdict]:
    """Part -> how a GPU runs it."""
    return {title: architecture.verdict(capability, names) for title, names in parts.items()}


def certified(gpu: Gpu, places: Sequence[str]) -> list[str]:
    """The models of this GPU in these places (hardware that a stack is certified on)."""
    words = {model: re.compile(rf"\b{re.escape(model)}\b") for model in gpu.models}
    return [model for model, word in words.items() if any(map(word.search, places))]


def capability(name: str) -> Capability | None:
    """The compute capability of a GPU by its name, such as "NVIDIA H200"; None for one that is not in the table."""
    return next((gpu.capability for gpu in GPUS if certified(gpu, [name])), None)


def worst(of_parts: Mapping[str, Verdict]) -> Verdict:
    """The verdict on a stack: that of the part that no run works without and that does worst."""
    needed = [of_parts[part.title] for part in PARTS if part.needed and part.title in of_parts]
    return max(needed, key=architecture.BEST_FIRST.index, default="absent")


def described(kernels: Kernels) -> dict[str, dict[str, list[str]]]:
    """What preflight needs: the architectures of the parts that every run needs, and of those that some runs need."""
    parts = architectures(kernels)
    return {
        group: {part.title: parts[part.title] for part in PARTS if part.title in parts and which(part)}
        for group, which in (
            ("needed", lambda part: part.needed),
            ("others", lambda part: not part.needed and not part.chosen),
        )
    }
