"""The optimizer's steps, taken again in float64: clipping, the learning rate's schedule, plain descent and AdamW."""

from __future__ import annotations

from typing import Any

from smoke.kit import factors
from smoke.kit.factors import Row
from smoke.kit.journal import Weights
from smoke.kit.replay import ulp

BETAS = (0.9, 0.999)


class Follower:
    """Computes what every step of a run should change, from the gradients that it should have had."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._moments: dict[str, tuple[Any, Any]] = {}
        self._steps = 0
        self.lost = False  # whether what the optimizer remembers is no longer known

    @property
    def remembers(self) -> bool:
        """Whether the gradients of a step have a part in the next ones, as those of Adam have."""
        return self._row["optimizer"] != "sgd"

    def clip(self, gradients: Weights, norm: float) -> Weights:
        """The gradients, no longer than allowed."""
        if self._row["gradient norm"] != "clipped" or norm <= factors.CLIPPED:
            return gradients
        return {name: gradient * factors.CLIPPED / norm for name, gradient in gradients.items()}

    def rate(self, index: int) -> float:
        """The learning rate of a step, counted from 0."""
        rate = factors.learning_rate(self._row)
        return rate * (1 - index / factors.steps(self._row)) if self._row.get("rate") == "linear" else rate

    def amplification(self, index: int) -> float:
        """By how much a step makes the rounding of a small gradient larger, or smaller, at most."""
        return self.rate(index) / (1 if self._row["optimizer"] == "sgd" else factors.ADAM_EPSILON)

    def step(self, index: int, gradients: Weights) -> Weights:
        """What the step at this index, counted from 0 over the whole run, should add to the weights."""
        self._steps += 1
        rate = self.rate(index)
        if self._row["optimizer"] == "sgd":
            return {name: -rate * gradient for name, gradient in gradients.items()}
        update = {}
        for name, gradient in gradients.items():
            first, second = self._moments.get(name, (0 * gradient, 0 * gradient))
            first = BETAS[0] * first + (1 - BETAS[0]) * gradient
            second = BETAS[1] * second + (1 - BETAS[1]) * gradient.square()
            self._moments[name] = first, second
            mean, square = first / (1 - BETAS[0] ** self._steps), second / (1 - BETAS[1] ** self._steps)
            update[name] = -rate * mean / (square.sqrt() + factors.ADAM_EPSILON)
        return update


def moved(before: Any, after: Any, expected: Any) -> Any:
    """How a weight changed, in float64, but as expected where only the rounding of float32 stands between them."""
    import torch

    change = after.double() - before.double()
    off = change - expected
    # Of both numbers, since each of them is rounded.
    allowed = ulp(torch.maximum(before.abs(), after.abs()), 1e-12)
    return expected + off.sign() * (off.abs() - allowed).clamp(min=0)


def errors(actual: Weights, expected: Weights, *, floor: float = 1e-3, rounding: float = 1e-5) -> dict[str, float]:
    """By tensor, the relative error; of a tensor that has almost nothing of the whole, in shares of the whole.

    `rounding` is added to what errors are shares of, for tensors that are the small rest of what cancels.
    """
    import torch

    norms = {name: tensor.norm().item() for name, tensor in expected.items()}
    least = floor * sum(norm**2 for norm in norms.values()) ** 0.5 + rounding
    nothing = torch.zeros((), dtype=torch.float64)
    return {
        name: (actual.get(name, nothing).double() - tensor).norm().item() / max(norms[name], least)
        for name, tensor in expected.items()
    }
