"""A run's clipped and scheduled steps of AdamW, taken again in float64 from the gradients of its micro-steps alone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """How a run updates weights: AdamW, clipping, and a cosine of so many steps, a share of them warm-up."""

    learning_rate: float
    betas: tuple[float, float]
    epsilon: float
    weight_decay: float
    max_grad_norm: float
    steps: int
    warmup: float

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0: a linear warm-up from 0, then half a cosine down to 0."""
        warmup = math.ceil(self.warmup * self.steps)
        if step < warmup:
            return self.learning_rate * step / warmup
        return self.learning_rate * (1 + math.cos(math.pi * (step - warmup) / (self.steps - warmup))) / 2

    def adamw(self, weight: Any, first: Any, second: Any, gradient: Any, decay: float, step: int) -> None:
        """One step of AdamW, counted from 1, in place."""
        rate = self.rate(step - 1)
        first.mul_(self.betas[0]).add_((1 - self.betas[0]) * gradient)
        second.mul_(self.betas[1]).add_((1 - self.betas[1]) * gradient**2)
        weight.mul_(1 - rate * decay)
        corrected = (second / (1 - self.betas[1] ** step)).sqrt()
        weight.sub_(rate * (first / (1 - self.betas[0] ** step)) / (corrected + self.epsilon))


class Replay:
    """Records a training run, and recomputes it with a recipe. All lists have one entry per step.

    `expected` are the weights after these steps, `norms` those of the gradients before clipping. `used_norms` are those
    of the gradients that the optimizer was given, and `errors` how far these are from the clipped ones.
    """

    def __init__(self, model: Any, recipe: Recipe) -> None:
        self.recipe = recipe
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.start = {name: double(p) for name, p in self.parameters.items()}
        self.expected = {name: start.clone() for name, start in self.start.items()}
        self.moments = {name: (0 * start, 0 * start) for name, start in self.start.items()}
        self.summed = {name: 0 * start for name, start in self.start.items()}
        self.finite: Counter[str] = Counter()
        self.norms: list[float] = []
        self.used_norms: list[float] = []
        self.errors: list[float] = []
        self.rates: list[list[float]] = []
        self.decays: dict[str, float] = {}
        for name, parameter in self.parameters.items():
            parameter.register_hook(partial(self._micro_step, name))

    def _micro_step(self, name: str, gradient: Any) -> None:
        self.finite[name] += bool(gradient.isfinite().all())
        self.summed[name] += double(gradient)

    def callback(self, last: int) -> Any:
        """The trainer's callback that follows its steps, and ends the run after the last."""
        from transformers import TrainerCallback

        replay = self

        class Follow(TrainerCallback):
            def on_pre_optimizer_step(self, *_: Any, optimizer: Any, **__: Any) -> None:
                replay.step(optimizer.param_groups)

            def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
                control.should_training_stop = state.global_step >= last

        return Follow()

    def step(self, groups: list[dict[str, Any]]) -> None:
        """Record the gradients that the optimizer will use, and take the same step in float64."""
        norm = _norm(self.summed)
        factor = min(1, self.recipe.max_grad_norm / norm) if norm else 1
        clipped = {name: factor * summed for name, summed in self.summed.items()}
        used = {name: double(p.grad) for name, p in self.parameters.items() if p.grad is not None}
        self.norms.append(norm)
        self.used_norms.append(_norm(used))
        self.errors.append(_norm({n: used.get(n, 0) - gradient for n, gradient in clipped.items()}) / (factor * norm))
        self.rates.append([group["lr"] for group in groups])
        decays = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
        self.decays = {name: decays[id(parameter)] for name, parameter in self.parameters.items()}
        for name, gradient in clipped.items():
            self.recipe.adamw(self.expected[name], *self.moments[name], gradient, self.decays[name], len(self.norms))
        for summed in self.summed.values():
            summed.zero_()


def ulp(values: Any, least: float) -> Any:
    """The distance between neighbours in float32 at these values.

    Those below the least count as if they were the least: what is added to them is no more precise than itself.
    """
    import torch

    single = values.float().abs().clamp(min=least)
    return (torch.nextafter(single, torch.full_like(single, math.inf)) - single).double()


def double(tensor: Any) -> Any:
    """A copy in float64, on the CPU."""
    import torch

    return tensor.detach().to("cpu", torch.float64, copy=True)


def _norm(tensors: dict[str, Any]) -> float:
    return math.sqrt(sum((tensor**2).sum().item() for tensor in tensors.values()))
