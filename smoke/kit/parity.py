"""Compare steps of real training with a reference."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, grpo, reference, scripted, tiny
from smoke.kit.reference import Objective, Sample
from smoke.kit.scripted import OptimizerStep, Script, Snapshot
from smoke.probe import Context, Reading

BETA = 0.1
STEPS = 2


class Expected:
    """The loss and the gradients that a step should have.

    `model` is any model in float64 of the same architecture, and `initial` are the parameters of the reference model.
    """

    def __init__(
        self, model: Any, script: Script, step: OptimizerStep, initial: Mapping[str, Any], objective: Objective
    ) -> None:
        self._model, self._samples, self._objective = model, script.samples, objective
        self._policy = {name: weight.double().requires_grad_() for name, weight in step.before.items()}
        self._others = [{name: w.double() for name, w in weights.items()} for weights in (step.sampled_from, initial)]
        self._scores = self._score(objective.temperature)
        self.loss, self.gradients = self._differentiate(self._samples, self._scores, objective)

    def furthest(self, gradients: Mapping[str, Any]) -> tuple[float, str]:
        """The largest relative error of a tensor's gradient, and the tensor's name."""
        import torch

        nothing = torch.zeros(())
        errors = {
            name: (gradients.get(name, nothing) - expected).norm().item() / expected.norm().item()
            for name, expected in self.gradients.items()
        }
        name = max(errors, key=lambda name: extremes.badness(errors[name]))
        return errors[name], name

    def effect(self, **wrong: Any) -> float:
        """The relative error of all gradients together if these fields of the objective were wrong."""
        objective = replace(self._objective, **wrong)
        scores = self._score(objective.temperature) if "temperature" in wrong else self._scores
        return self._distance(self._differentiate(self._samples, scores, objective)[1])

    def effect_of_losing(self, lost: Collection[int]) -> float:
        """The same if these completions were left out of the loss."""
        samples = [replace(sample, truncated=i in lost) for i, sample in enumerate(self._samples)]
        objective = replace(self._objective, mask_truncated=True)
        return self._distance(self._differentiate(samples, self._scores, objective)[1])

    def _distance(self, gradients: Mapping[str, Any]) -> float:
        off = sum((gradients[name] - expected).square().sum().item() for name, expected in self.gradients.items())
        return math.sqrt(off / sum(expected.square().sum().item() for expected in self.gradients.values()))

    def _score(self, temperature: float) -> list[list[Any]]:
        """The log-probabilities under the policy, the policy that was sampled from, and the reference model."""
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
class DividedBatch:
    """Errors of steps whose batch was divided among micro-batches and ranks, by loss type, step and tensor.

    `gradients` and `updates` are relative errors against the undivided batch; with DeepSpeed there are no `gradients`.
    `lost` are the errors if half of the completions were lost, `after` the parameters at the end of each training, and
    `model` the last model, as the trainer wrapped it.
    """

    gradients: dict[str, float] = field(default_factory=dict)
    updates: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    after: list[dict[str, Any]] = field(default_factory=list)
    model: Any = None


def train_divided(
    context: Context,
    model: Path,
    micro_batches: int,
    learning_rate: float,
    *,
    snapshot: Snapshot = grpo.snapshot,
    **options: Any,
) -> DividedBatch:
    """Train two steps with every average that does not depend on how a batch is divided. All ranks must call it."""
    from accelerate.state import AcceleratorState

    result = DividedBatch()
    # Before any trainer: with ZeRO-3 on, Transformers divides the parameters of every new model.
    plain = tiny.make_model(0).double()
    known, averages = adapter.known_options(), adapter.averages()
    rows = len(scripted.LENGTHS) // micro_batches // context.ranks
    script = scripted.write(
        context.seed, len(scripted.LENGTHS) // adapter.largest_group(rows, context.ranks, micro_batches)
    )
    for loss_type, average in averages.items():
        # "bnpo" is the mean over the tokens of each part, then over parts. The ranks share no count for "dr_grpo".
        if loss_type == "bnpo" or (loss_type == "dr_grpo" and context.ranks > 1):
            continue
        settings = {"loss_type": loss_type, "beta": BETA, "use_bias_correction_kl": False}
        training = scripted.Training(
            context,
            script,
            model,
            micro_batches=micro_batches,
            max_steps=STEPS,
            learning_rate=learning_rate,
            **{name: value for name, value in settings.items() if name in known},
            **options,
        )
        training.snapshot = snapshot
        steps = training.run()
        result.after.append(steps[-1].after)
        result.model = training.trainer.model_wrapped
        for number, step in enumerate(steps, 1):
            objective = Objective(average, scripted.ALLOWED, beta=BETA)
            expected = Expected(plain, script, step, steps[0].before, objective)
            place = f"{loss_type or 'default'}, step {number}"
            if step.gradients:
                error, tensor = expected.furthest(step.gradients)
                result.gradients[f"{place}, {tensor}"] = error
            error, tensor = expected.furthest(step.update(learning_rate))
            result.updates[f"{place}, {tensor}"] = error
            result.lost[place] = expected.effect_of_losing(range(len(scripted.LENGTHS) // 2))
        # Otherwise it accepts only one DeepSpeed configuration per process.
        AcceleratorState._reset_state()
    return result


def ranks_differ(after: list[dict[str, Any]]) -> Reading:
    """The number of tensors that are not bit for bit the same on all ranks. All ranks must call it."""
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
