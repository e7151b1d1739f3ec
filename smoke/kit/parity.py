"""A step of real training next to what the reference makes of it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smoke.kit import adapter, grpo, reference, scripted, tiny
from smoke.kit.reference import Objective, Sample
from smoke.kit.scripted import Script, Snapshot, Step
from smoke.probe import Context, Reading

BETA = 0.1
STEPS = 2
# How many of the numbers behind a reading its detail tells.
TOLD = 4


class Expected:
    """The loss and the gradients that a step should have had.

    `model` is any model in float64 of the same architecture, and `initial` are the parameters of the reference model.
    """

    def __init__(
        self, model: Any, script: Script, step: Step, initial: Mapping[str, Any], objective: Objective
    ) -> None:
        self._model, self._samples, self._objective = model, script.samples, objective
        self._policy = {name: weight.double().requires_grad_() for name, weight in step.before.items()}
        self._others = [{name: w.double() for name, w in weights.items()} for weights in (step.sampled_from, initial)]
        self._scores = self._score(objective.temperature)
        self.loss, self.gradients = self._differentiate(self._samples, self._scores, objective)

    def furthest(self, gradients: Mapping[str, Any]) -> tuple[float, str]:
        """How far off the gradient of a tensor is, relative to the expected one, at most, and of which."""
        import torch

        nothing = torch.zeros(())
        errors = {
            name: (gradients.get(name, nothing) - expected).norm().item() / expected.norm().item()
            for name, expected in self.gradients.items()
        }
        name = max(errors, key=lambda name: _badness(errors[name]))
        return errors[name], name

    def effect(self, **wrong: Any) -> float:
        """How far off all gradients together would be with these fields of the objective, relative to the expected."""
        objective = replace(self._objective, **wrong)
        scores = self._score(objective.temperature) if "temperature" in wrong else self._scores
        return self._distance(self._differentiate(self._samples, scores, objective)[1])

    def effect_of_losing(self, lost: Collection[int]) -> float:
        """The same, with these of the completions left out of the loss."""
        samples = [replace(sample, truncated=i in lost) for i, sample in enumerate(self._samples)]
        objective = replace(self._objective, mask_truncated=True)
        return self._distance(self._differentiate(samples, self._scores, objective)[1])

    def _distance(self, gradients: Mapping[str, Any]) -> float:
        off = sum((gradients[name] - expected).square().sum().item() for name, expected in self.gradients.items())
        return math.sqrt(off / sum(expected.square().sum().item() for expected in self.gradients.values()))

    def _score(self, temperature: float) -> list[list[Any]]:
        """The log-probabilities under the policy, the one that was sampled from and the reference model."""
        policies = (self._policy, *self._others)
        return [reference.log_probs(self._model, policy, self._samples, temperature) for policy in policies]

    def _differentiate(
        self, samples: Sequence[Sample], scores: list[list[Any]], objective: Objective
    ) -> tuple[float, dict[str, Any]]:
        import torch

        loss = reference.loss(samples, objective, *scores)
        gradients = torch.autograd.grad(loss, list(self._policy.values()), retain_graph=True)
        return loss.item(), dict(zip(self._policy, gradients, strict=True))


@dataclass
class Divided:
    """What became of steps whose batch was divided among micro-batches and ranks: by loss type, step and tensor.

    `gradients` and `updates` are how far off they are from those of the batch as a whole, relative to them; of
    `gradients` there are none with DeepSpeed. `lost` is how far off they would be without half of the completions,
    `after` are the parameters at the end of each training, and `model` is the last one as it was wrapped.
    """

    gradients: dict[str, float] = field(default_factory=dict)
    updates: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    after: list[dict[str, Any]] = field(default_factory=list)
    model: Any = None


def divide(
    context: Context,
    model: Path,
    micro_batches: int,
    learning_rate: float,
    *,
    snapshot: Snapshot = grpo.snapshot,
    **options: Any,
) -> Divided:
    """Train two steps with every way to average that does not depend on how a batch is divided. Every rank calls it."""
    from accelerate.state import AcceleratorState

    found = Divided()
    # Made before any trainer is: with ZeRO-3 on, Transformers divides the parameters of every new model.
    plain = tiny.make_model(0).double()
    known, averages = adapter.known_options(), adapter.averages()
    rows = len(scripted.LENGTHS) // micro_batches // context.ranks
    script = scripted.write(
        context.seed, len(scripted.LENGTHS) // adapter.largest_group(rows, context.ranks, micro_batches)
    )
    for loss_type, average in averages.items():
        # "bnpo" is the mean over the tokens of each part, then over the parts. "dr_grpo" has no count that ranks share.
        if loss_type == "bnpo" or (loss_type == "dr_grpo" and context.ranks > 1):
            continue
        asked = {"loss_type": loss_type, "beta": BETA, "use_bias_correction_kl": False}
        training = scripted.Training(
            context,
            script,
            model,
            micro_batches=micro_batches,
            max_steps=STEPS,
            learning_rate=learning_rate,
            **{name: value for name, value in asked.items() if name in known},
            **options,
        )
        training.snapshot = snapshot
        steps = training.run()
        found.after.append(steps[-1].after)
        found.model = training.trainer.model_wrapped
        for number, step in enumerate(steps, 1):
            objective = Objective(average, scripted.ALLOWED, beta=BETA)
            expected = Expected(plain, script, step, steps[0].before, objective)
            what = f"{loss_type or 'default'}, step {number}"
            if step.gradients:
                error, tensor = expected.furthest(step.gradients)
                found.gradients[f"{what}, {tensor}"] = error
            error, tensor = expected.furthest(step.update(learning_rate))
            found.updates[f"{what}, {tensor}"] = error
            found.lost[what] = expected.effect_of_losing(range(len(scripted.LENGTHS) // 2))
        # It takes one configuration of DeepSpeed in the life of a process.
        AcceleratorState._reset_state()
    return found


def tell(values: Mapping[str, float], *, least: bool = False) -> tuple[float, str]:
    """The largest of the values, or the smallest, and in words where the outermost of them were."""
    ordered = sorted(values.items(), key=lambda item: _badness(item[1]), reverse=not least)
    return ordered[0][1], "; ".join(f"{what}: {value:.2g}" for what, value in ordered[:TOLD])


def _badness(error: float) -> float:
    """To compare by: what is not a number is worse than any number, and max() may pass it over."""
    return math.inf if math.isnan(error) else error


def ranks_differ(after: list[dict[str, Any]]) -> Reading:
    """How many tensors are not the same bits on every rank. Every rank calls it."""
    import torch
    import torch.distributed as dist

    others: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(others, after)
    differ = {
        name
        for other in others
        for mine, theirs in zip(after, other, strict=True)
        for name in mine
        if not torch.equal(mine[name], theirs[name])
    }
    return Reading("ranks_differ", len(differ), ", ".join(sorted(differ)))
