"""A sample of the weights before and after a step: did they move, and down the gradient?

A few hundred elements of a few tensors, others at each step, so that the cost does not grow with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TENSORS, ELEMENTS = 24, 256  # of a step


@dataclass(frozen=True)
class Place:
    """Elements of a parameter: every `stride`-th from `first`."""

    parameter: Any
    first: int
    stride: int

    def of(self, tensor: Any) -> Any:
        """These elements of a tensor of the parameter's shape, in float32."""
        return tensor.detach().reshape(-1)[self.first :: self.stride][:ELEMENTS].float()


def local(parameter: Any) -> Any:
    """The part of a parameter that this process has: under ZeRO-3 and FSDP it is a shard."""
    shard = getattr(parameter, "ds_tensor", None)
    if shard is not None:
        return shard
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


def places(parameters: Sequence[Any], step: int) -> list[Place]:
    """Where to look at this step, of the parameters that are trained."""
    chosen = []
    for turn in range(min(TENSORS, len(parameters))):
        parameter = parameters[(step * TENSORS + turn) % len(parameters)]
        tensor = local(parameter)
        if tensor.numel() and tensor.is_contiguous() and tensor.is_floating_point():
            stride = max(1, tensor.numel() // ELEMENTS)
            chosen.append(Place(parameter, (step * 7919) % stride, stride))
    return chosen


def values(chosen: Sequence[Place]) -> Any:
    """The elements at these places, in one tensor; a copy."""
    return _joined([place.of(local(place.parameter)).clone() for place in chosen])


def gradients(chosen: Sequence[Place]) -> Any:
    """Their gradients, or None where this process does not have them all: DeepSpeed and FSDP keep their own."""
    read = []
    for place in chosen:
        gradient = getattr(place.parameter, "grad", None)
        if gradient is None or gradient.shape != local(place.parameter).shape or hasattr(gradient, "to_local"):
            return None
        read.append(place.of(gradient))
    return _joined(read)


def _joined(read: Sequence[Any]) -> Any:
    import torch

    # A model may be spread over several GPUs, or have a part of itself on the CPU.
    return torch.cat([values.to(read[0].device) for values in read])


def mark(values: Any) -> Any:
    """A short hash of these elements: a tensor of one integer below 2^24, which float32 holds exactly."""
    import torch

    bits = values.contiguous().view(torch.int32).long()
    mixed = bits * (torch.arange(len(bits), device=bits.device) * 2 + 1) * 0x9E3779B97F4A7
    mixed = (mixed ^ (mixed >> 29)) * 0x4CF5AD432745937
    return (mixed.sum() >> 32) & 0xFFFFFF


def moved(before: Any, after: Any, gradient: Any) -> dict[str, Any]:
    """Numbers of an update, as tensors of one element."""
    step = after - before
    numbers = {
        "elements_moved": (step != 0).float().mean(),
        "update_norm": step.norm() / before.norm().clamp(min=1e-12),
        "weights_not_finite": (~after.isfinite()).sum(),
    }
    if gradient is not None:
        numbers["gradient_sample"] = gradient.norm()
        numbers["slope"] = (step * gradient).sum() / (step.norm() * gradient.norm()).clamp(min=1e-30)
    return numbers
