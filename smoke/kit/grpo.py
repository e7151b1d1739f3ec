"""Shared by the GRPO probes: a reward, a tiny run, and checks that it really trained."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, tiny
from smoke.probe import Bound, Context, Reading

STEPS = 3
GENERATIONS = 4
COMPLETION_LENGTH = 16


class Reward:
    """Scores every completion and records the scores.

    A score is the mean of the characters modulo 128, from 0 to 1: hardly any two are equal.
    """

    __name__ = "mean_character"

    def __init__(self) -> None:
        self.batches: list[list[float]] = []

    def __call__(self, completions: list[Any], **_: Any) -> list[float]:
        rewards = [self.score(c if isinstance(c, str) else c[-1]["content"]) for c in completions]
        self.batches.append(rewards)
        return rewards

    @staticmethod
    def score(text: str) -> float:
        return sum(ord(letter) % 128 for letter in text) / 128 / max(1, len(text))


@dataclasses.dataclass
class Run:
    """A finished training run, with the parameters from before it (by name, on the CPU)."""

    trainer: Any
    reward: Reward
    before: Mapping[str, Any]


# Arguments of the trainer itself.
_OWN = ("peft_config", "processing_class", "eval_dataset", "train_dataset")


def make_trainer(
    context: Context, model: Any, reward: Callable[..., list[float]] | Sequence[Callable[..., Any]], **options: Any
) -> Any:
    """A GRPOTrainer for `model` (an object or a directory), with one reward function or several.

    `options` go to GRPOConfig, except `peft_config`, `processing_class`, `eval_dataset` and `train_dataset` (by default
    ours). Our options are left out if this TRL does not know them, the caller's never.
    """
    from trl import GRPOConfig, GRPOTrainer

    own = {name: options.pop(name) for name in _OWN if name in options}
    ours = {
        "seed": context.seed,
        "max_steps": STEPS,
        "per_device_train_batch_size": adapter.batch_of(GENERATIONS, GENERATIONS),
        # 8 in TRL 0.14.
        "gradient_accumulation_steps": 1,
        "num_generations": GENERATIONS,
        "max_completion_length": COMPLETION_LENGTH,
        # Large enough that every parameter moves visibly, and a stale sampler shows, in so few steps.
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "bf16": False,
        "logging_steps": 1,
        # Otherwise the log replaces a loss that is not finite by the previous one.
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    known = adapter.known_options()
    arguments = GRPOConfig(
        output_dir=str(context.directory / "trainer"),
        **{**{name: value for name, value in ours.items() if name in known}, **options},
    )
    return GRPOTrainer(
        model=str(model) if isinstance(model, Path) else model,
        reward_funcs=reward,
        args=arguments,
        **{"train_dataset": tiny.make_prompts(32), **own},
    )


def train(context: Context, model: Any, **options: Any) -> Run:
    """Train `model` for a few steps; see `make_trainer`."""
    reward = Reward()
    trainer = make_trainer(context, model, reward, **options)
    before = snapshot(trainer.model)
    trainer.train()
    return Run(trainer, reward, before)


def at_step_end(trainer: Any, work: Callable[[int], None]) -> None:
    """Call `work` after each step with the step's number, counted from 1."""
    from transformers import TrainerCallback

    class AtStepEnd(TrainerCallback):
        def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_: Any) -> None:
            work(state.global_step)

    trainer.add_callback(AtStepEnd())


def snapshot(model: Any) -> dict[str, Any]:
    """Copies of the model's parameters, by name, on the CPU."""
    return {name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()}


def check(trainer: Any, reward: Reward) -> Iterator[Reading]:
    """The readings of BOUNDS for a finished run. All ranks must call it together."""
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    numbers = [(entry["loss"], entry["grad_norm"]) for entry in steps]
    # A gradient of zero would be finite, too, but nothing to train with.
    finite = [math.isfinite(loss) and math.isfinite(norm) and norm > 0 for loss, norm in numbers]
    yield Reading("steps_finite", sum(finite), f"losses and gradient norms {numbers}")
    batches = _of_all_ranks(reward.batches)
    yield Reading(
        "reward_spread", extremes.smallest(map(statistics.pstdev, batches), default=math.nan), f"rewards {batches}"
    )
    means = [statistics.fmean(batch) for batch in batches]
    logged = [entry["reward"] for entry in steps]
    errors = [abs(mean - logged_mean) for mean, logged_mean in zip(means, logged, strict=True)]
    yield Reading("reward_error", extremes.largest(errors, default=math.nan), f"given {means}, logged {logged}")


def _of_all_ranks(batches: list[list[float]]) -> list[list[float]]:
    import torch.distributed as dist

    if not dist.is_initialized():
        return batches
    gathered: list[list[list[float]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, batches)
    return [list(itertools.chain(*together)) for together in zip(*gathered, strict=True)]


def moved(before: Mapping[str, Any], model: Any) -> Reading:
    """The share of the trainable parameter tensors that changed."""
    import torch

    trainable = {name: p.detach().cpu() for name, p in model.named_parameters() if p.requires_grad}
    still = [name for name, parameter in trainable.items() if torch.equal(parameter, before[name])]
    share = 1 - len(still) / len(trainable) if trainable else math.nan
    return Reading("parameters_moved", share, f"without {', '.join(still)}" if still else "")


MOVED = Bound(
    "parameters_moved", "the share of trainable tensors that changed; the optimizer updates all of them", equals=1
)

BOUNDS = (
    Bound("steps_finite", "every step has a finite loss and a finite, nonzero gradient", "steps", equals=STEPS),
    Bound(
        "reward_spread",
        "the smallest standard deviation within a step: GRPO learns from differences. 0.0040 to 0.12 over 210 runs; "
        "0 when the reward is constant",
        at_least=1e-5,
    ),
    Bound(
        "reward_error",
        "the difference between the mean reward that the trainer logs and that of the reward function: up to 7e-8 over "
        "210 runs, the rounding of float32",
        at_most=1e-5,
    ),
)
