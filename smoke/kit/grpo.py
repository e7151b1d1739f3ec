"""What the GRPO probes share: a reward, a tiny run, and the checks that it really trained."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from smoke.kit import adapter, tiny
from smoke.probe import Bound, Context, Reading

STEPS = 3
GENERATIONS = 4
COMPLETION_LENGTH = 16


class Reward:
    """Scores every completion, and remembers what it gave.

    The score is the mean of the characters modulo 128, from 0 to 1: equal for hardly any two.
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
    """A finished training run, with the parameters as they were before (by name, on the CPU)."""

    trainer: Any
    reward: Reward
    before: Mapping[str, Any]


# What the trainer itself takes.
_OWN = ("peft_config", "processing_class", "eval_dataset", "train_dataset")


def make_trainer(context: Context, model: Any, reward: Callable[..., list[float]], **options: Any) -> Any:
    """A GRPOTrainer for `model` (an object or a directory).

    `options` go into GRPOConfig, but `peft_config`, `processing_class`, `eval_dataset`, and `train_dataset`, which is
    ours if there is none. Options of ours that this TRL does not know are left out, options of the caller never.
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
        # Large enough for every parameter to move visibly, and for a stale sampler to show, in so few steps.
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "bf16": False,
        "logging_steps": 1,
        # Otherwise the log replaces a loss that is not finite by the one before.
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
    """Have `work` called with the number of each step, counted from 1, when the step has been taken."""
    from transformers import TrainerCallback

    class AtStepEnd(TrainerCallback):
        def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_: Any) -> None:
            work(state.global_step)

    trainer.add_callback(AtStepEnd())


def snapshot(model: Any) -> dict[str, Any]:
    """Copies of the model's parameters, by name, on the CPU."""
    return {name: parameter.detach().cpu().clone() for name, parameter in model.named_parameters()}


def check(trainer: Any, reward: Reward) -> Iterator[Reading]:
    """Read off a finished run what BOUNDS asks of every one. Of several ranks, all must call it together."""
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    numbers = [(entry["loss"], entry["grad_norm"]) for entry in steps]
    # A gradient of zero would be finite, too, but nothing to train with.
    finite = [math.isfinite(loss) and math.isfinite(norm) and norm > 0 for loss, norm in numbers]
    yield Reading("steps_finite", sum(finite), f"losses and gradient norms {numbers}")
    batches = _of_all_ranks(reward.batches)
    yield Reading("reward_spread", min(map(statistics.pstdev, batches), default=math.nan), f"rewards {batches}")
    given = [statistics.fmean(batch) for batch in batches]
    logged = [entry["reward"] for entry in steps]
    errors = [abs(one - other) for one, other in zip(given, logged, strict=True)]
    yield Reading("reward_error", max(errors, default=math.nan), f"given {given}, logged {logged}")


def _of_all_ranks(batches: list[list[float]]) -> list[list[float]]:
    import torch.distributed as dist

    if not dist.is_initialized():
        return batches
    gathered: list[list[list[float]]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, batches)
    return [list(itertools.chain(*together)) for together in zip(*gathered, strict=True)]


def moved(before: Mapping[str, Any], model: Any) -> Reading:
    """The share of the trainable parameter tensors that are not what they were."""
    import torch

    trainable = {name: p.detach().cpu() for name, p in model.named_parameters() if p.requires_grad}
    still = [name for name, parameter in trainable.items() if torch.equal(parameter, before[name])]
    share = 1 - len(still) / len(trainable) if trainable else math.nan
    return Reading("parameters_moved", share, f"without {', '.join(still)}" if still else "")


MOVED = Bound(
    "parameters_moved", "the share of trainable tensors that changed; the optimizer updates all of them", equals=1
)

BOUNDS = (
    Bound("steps_finite", "every step has a finite loss and a finite gradient that is not zero", "steps", equals=STEPS),
    Bound(
        "reward_spread",
        "the smallest standard deviation within a step: GRPO learns from differences. 0.0040 to 0.12 over 210 runs; "
        "0 when the reward is constant",
        at_least=1e-5,
    ),
    Bound(
        "reward_error",
        "the mean that the trainer logs against that of what the reward function gave: up to 7e-8 over 210 runs, the "
        "rounding of float32",
        at_most=1e-5,
    ),
)
