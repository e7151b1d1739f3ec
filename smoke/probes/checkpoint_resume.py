"""Does a run that was stopped and resumed continue as if it had never stopped?

Catches resumed runs that continue without an error but differently: optimizer moments that start at zero again, a
learning rate that starts over, prompts that are trained twice or skipped, new random numbers.

Trains with a checkpoint in the middle, creates everything anew, resumes from that checkpoint, and compares what
follows: prompts, completions, the random numbers of Python and NumPy, losses, learning rates, and at the end the
parameters and the optimizer's moments. To show that it would notice, it also resumes without the optimizer, without the
random states, and without skipping the data already used. It stops in the first epoch, before a new generation:
elsewhere TRL, as of 1.16, does not resume exactly, because its sampler repeats the order of the first epoch, and its
count of steps since the last generation starts at zero. Needs one process.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from smoke.kit import grpo, tiny
from smoke.probe import Bound, Context, Probe, Reading

STOP, STEPS = 2, 4

# What a resume can lose: the reading that must detect it, a file to delete, and options.
LOSSES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "the optimizer": ("moments_different", "optimizer.pt", {}),
    "the random states": ("completions_different", "rng_state.pth", {}),
    "the place in the data": ("prompts_different", "", {"ignore_data_skip": True}),
}

PROBE = Probe(
    matters="most long runs are resumed at some point; one that does not continue where it stopped is a different run",
    bounds=(
        Bound(
            "parameters_different",
            "after the last step: 0 over 12 seeds, the same bits; all 27 when anything below is lost but NumPy's state",
            "tensors",
            equals=0,
            headline=True,
        ),
        Bound("moments_different", "of AdamW, and its step counters: 0 over 12 seeds", "tensors", equals=0),
        Bound("prompts_different", "0 over 12 seeds; all 16 when the data start anew", "prompts", equals=0),
        Bound(
            "completions_different",
            "0 over 12 seeds; 13 to 16 of 16 when the random states or the weights are not loaded",
            "completions",
            equals=0,
        ),
        Bound("draws_different", "of Python and NumPy, in the reward: 0 over 12 seeds", "numbers", equals=0),
        Bound(
            "logs_different",
            "losses, gradient norms, learning rates, rewards: 0 over 12 seeds; 2 when only the scheduler starts anew",
            "numbers",
            equals=0,
        ),
        Bound(
            "losses_unnoticed",
            "a resume without the optimizer must differ in its moments, one without random states in its completions, "
            "one that does not go forward in the data in its prompts",
            equals=0,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/3247",
        "https://github.com/huggingface/transformers/issues/34631",
        "https://github.com/huggingface/transformers/pull/40691",
        "https://github.com/huggingface/accelerate/pull/4071",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)

Journal = dict[str, dict[str, Any]]


def run(context: Context) -> Iterator[Reading]:
    """Train, resume and compare; then resume with something lost."""
    model = tiny.save(context.directory / "model", context.seed)
    straight = _train(context, model, save_strategy="steps", save_steps=STOP)
    checkpoint = context.directory / "trainer" / f"checkpoint-{STOP}"
    for name, differences in _compare(straight, _train(context, model, checkpoint)).items():
        yield Reading(name, len(differences), "; ".join(differences[:4]))

    unnoticed = []
    for loss, (reading, file, options) in LOSSES.items():
        poorer = Path(shutil.copytree(checkpoint, context.directory / "poorer", dirs_exist_ok=True))
        (poorer / file).unlink() if file else None
        if not _compare(straight, _train(context, model, poorer, **options))[reading]:
            unnoticed.append(f"{loss} (by {reading})")
    yield Reading("losses_unnoticed", len(unnoticed), ", ".join(unnoticed))


class Reward(grpo.Reward):
    """A reward that records its arguments, and draws random numbers, as a user's reward may."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[str] = []
        self.completions: list[str] = []
        self.draws: list[float] = []

    def __call__(self, completions: list[Any], **columns: Any) -> list[float]:
        import numpy

        self.prompts += [prompt[-1]["content"] for prompt in columns["prompts"]]
        self.completions += [completion[-1]["content"] for completion in completions]
        self.draws += [random.random(), float(numpy.random.random())]
        return super().__call__(completions)


def _train(context: Context, model: Path, checkpoint: Path | None = None, **options: Any) -> Journal:
    """What happened after STOP, and the final state: for each reading, values by a name that shows their place."""
    reward = Reward()
    # Two passes for each step, so that steps and batches of data are not the same number.
    options = {"gradient_accumulation_steps": 2, "lr_scheduler_type": "linear", "max_steps": STEPS, **options}
    trainer = grpo.make_trainer(context, model, reward, **options)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    share = 1 if checkpoint else (STEPS - STOP) / STEPS
    parameters = dict(trainer.model.named_parameters())
    return {
        "parameters_different": {name: p.detach().cpu() for name, p in parameters.items()},
        "moments_different": {
            f"{name}.{key}": value.cpu()
            for name, parameter in parameters.items()
            for key, value in trainer.optimizer.state[parameter].items()
        },
        "prompts_different": _last(share, reward.prompts),
        "completions_different": _last(share, reward.completions),
        "draws_different": _last(share, reward.draws),
        "logs_different": {
            f"{key} of step {entry['step']}": entry[key]
            for entry in trainer.state.log_history
            if entry["step"] > STOP and "loss" in entry
            for key in ("loss", "grad_norm", "learning_rate", "reward")
        },
    }


def _last(share: float, values: list[Any]) -> dict[str, Any]:
    """The last values, by their place and their number."""
    kept = values[round(len(values) * (1 - share)) :]
    return {f"{i} of {len(kept)}": value for i, value in enumerate(kept)}


def _compare(straight: Journal, resumed: Journal) -> dict[str, list[str]]:
    """The differences by reading."""
    return {name: list(_differences(values, resumed[name])) for name, values in straight.items()}


def _differences(straight: Mapping[str, Any], resumed: Mapping[str, Any]) -> Iterator[str]:
    import torch

    for name in dict.fromkeys((*straight, *resumed)):
        a, b = straight.get(name), resumed.get(name)
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
            if not torch.equal(a, b):
                yield f"{name} by up to {(a - b).abs().max().item():.3g}"
        elif a != b:
            yield f"{name}: {a!r} became {b!r}"
