"""Checks of the GPUs against the image: its kernels, and the least driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from runtime import capability
from runtime.capability import Capability
from runtime.check import Check

CHOOSE = "on the host: vetted list --gpus shows which stacks have kernels for it; then vetted use STACK"


def old_driver(version: str, cuda: str, gpus: Mapping[str, Capability]) -> list[Check]:
    """Whether a driver is older than a CUDA version needs, in general or on one of these GPUs (model -> capability)."""
    for model, number in (("", None), *gpus.items()):
        least = capability.driver(cuda, number)
        if capability.numbers(version) < capability.numbers(least):
            what = f"CUDA {cuda}" + (f" on {model}" if model else "")
            return [
                Check(
                    "stop",
                    f"driver {version} is too old for {what}, which needs {least} or newer",
                    "update the driver; or find a stack with an older CUDA, on the host: vetted list --gpus",
                )
            ]
    return []


def missing(description: Mapping[str, Any], gpus: Mapping[str, Capability]) -> list[Check]:
    """Whether the libraries of an image (its stack.json) have kernels for these GPUs (model -> capability)."""
    needed, others = _parts(description, "needed"), _parts(description, "others")
    if not needed:
        return []  # nobody read its kernels
    if not gpus:
        return [
            Check(
                "advice",
                "the compute capability of the GPU cannot be told, because the driver's libnvidia-ml.so.1 is not here",
                "ask for the capability utility: docker run --gpus all",
            )
        ]
    return [check for model, number in gpus.items() for check in _of_gpu(model, number, needed, others)]


def _of_gpu(
    model: str, number: Capability, needed: Mapping[str, list[str]], others: Mapping[str, list[str]]
) -> list[Check]:
    name = f"{model} (compute capability {number[0]}.{number[1]})"
    verdicts = {part: capability.verdict(number, names) for part, names in {**needed, **others}.items()}
    absent = [part for part in needed if verdicts[part] == "absent"]
    if absent:
        has = "; ".join(f"{part} has {_listed(needed[part])}" for part in absent)
        return [
            Check(
                "stop",
                f"this image has no kernels for {name}: {has}. The first step would end with "
                "'no kernel image is available for execution on the device'",
                CHOOSE,
            )
        ]
    checks = []
    if slow := [part for part in needed if verdicts[part] == "PTX"]:
        message = (
            f"no machine code for {name} in {' and '.join(slow)}: the driver compiles it at the first start, which"
        )
        checks.append(Check("advice", f"{message} takes minutes"))
    if without := [part for part in others if verdicts[part] == "absent"]:
        checks.append(Check("advice", f"no kernels for {name} in {', '.join(without)}: what needs them will fail"))
    return checks or [Check("ok", f"this image has kernels for {name}")]


def _parts(description: Mapping[str, Any], group: str) -> dict[str, list[str]]:
    """Part -> its architectures."""
    kernels = description.get("kernels")
    parts = kernels.get(group) if isinstance(kernels, dict) else None
    return parts if isinstance(parts, dict) else {}


def _listed(architectures: Iterable[str]) -> str:
    return ", ".join(architectures) or "none"
