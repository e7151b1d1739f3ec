"""A step of real training next to what the reference makes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from smoke import reference, tiny
from smoke.reference import Objective
from smoke.scripted import Script, Step


class Expected:
    """The loss and the gradients that a step should have had. `initial` are the parameters of the reference model."""

    def __init__(
        self, script: Script, step: Step, initial: Mapping[str, Any], objective: Objective, architecture: str = "qwen2"
    ) -> None:
        self._samples, self._objective = script.samples, objective
        self._model = tiny.make_model(0, architecture).double()
        self._policy = {name: weight.double().requires_grad_() for name, weight in step.before.items()}
        self._others = [{name: w.double() for name, w in weights.items()} for weights in (step.sampled_from, initial)]
        self._scores = self._score(objective.temperature)
        self.loss, self.gradients = self._differentiate(self._scores, objective)

    def furthest(self, gradients: Mapping[str, Any]) -> tuple[float, str]:
        """How far off the gradient of a tensor is, relative to the expected one, at most, and of which."""
        import torch

        nothing = torch.zeros(())
        errors = {
            name: (gradients.get(name, nothing) - expected).norm().item() / expected.norm().item()
            for name, expected in self.gradients.items()
        }
        name = max(errors, key=errors.__getitem__)
        return errors[name], name

    def effect(self, **wrong: Any) -> float:
        """How far off all gradients together would be with these fields of the objective, relative to the expected."""
        objective = replace(self._objective, **wrong)
        scores = self._score(objective.temperature) if "temperature" in wrong else self._scores
        _, gradients = self._differentiate(scores, objective)
        off = sum((gradients[name] - expected).square().sum().item() for name, expected in self.gradients.items())
        return math.sqrt(off / sum(expected.square().sum().item() for expected in self.gradients.values()))

    def _score(self, temperature: float) -> list[list[Any]]:
        """The log-probabilities under the policy, the one that was sampled from and the reference model."""
        models = (self._policy, *self._others)
        return [reference.log_probs(self._model, model, self._samples, temperature) for model in models]

    def _differentiate(self, scores: list[list[Any]], objective: Objective) -> tuple[float, dict[str, Any]]:
        import torch

        loss = reference.loss(self._samples, objective, *scores)
        gradients = torch.autograd.grad(loss, list(self._policy.values()), retain_graph=True)
        return loss.item(), dict(zip(self._policy, gradients, strict=True))
