"""Train the task of the golden trajectories once for each of some seeds, written like a probe.

A tiny policy learns to answer with eight lower-case letters. It begins with the same weights for every seed, and ends
most of its first answers early, so the lengths have a curve too. The seed gives the order of the data and the samples.
All options that decide what is learnt are set here, because their defaults differ between releases of TRL.

The environment variable VETTED_TRAJECTORIES has the settings of the whole run, the context the first seed of this part.
The reading of a seed is 1 with the numbers of every step as JSON, or 0 with the reason for which it failed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from smoke.kit import adapter, grpo, side, tiny
from smoke.probe import Bound, Context, Probe, Reading

SETTINGS = "VETTED_TRAJECTORIES"
LENGTH = 8  # tokens of the longest answer
SEQUENCES = 64  # in a step
GENERATIONS = 8
LEARNING_RATE = 5e-4  # the reward goes from 0.1 to 0.95 in 200 steps
BETA = 0.1
# How much likelier the first policy ends its answer at a token: its logit is higher by 2 on average.
EARLY_END = 2.0
# By our name, the names under which releases of TRL log a number. Entropy is logged since 0.20.
LOGGED = {
    "reward": ("reward",),
    "loss": ("loss",),
    "kl": ("kl",),
    "entropy": ("entropy",),
    "length": ("completions/mean_length", "completion_length"),
    "grad_norm": ("grad_norm",),
}

PROBE = Probe(
    matters="-",
    bounds=(Bound("seed", "every seed of a part has its own bound instead", equals=1, headline=True),),
    links=(),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
    forks=True,
)


class Reward(grpo.Reward):
    """The lower-case letters of an answer, as a share of the longest answer."""

    @staticmethod
    def score(text: str) -> float:
        return sum("a" <= letter <= "z" for letter in text) / LENGTH


def run(context: Context) -> Iterator[Reading]:
    """Train with some seeds side by side, and report the numbers of each."""
    settings = json.loads(os.environ[SETTINGS])
    seeds = range(context.seed, min(context.seed + settings["width"], settings["end"]))
    pieces = {str(seed): _piece(context.device, seed, settings["steps"], settings["threads"]) for seed in seeds}
    on_gpu = context.device == "cuda"
    for name, result in side.side_by_side(pieces, context.directory / "seeds", gpus=on_gpu).items():
        failure = result.get("failure")
        yield Reading(name, failure is None, failure or json.dumps(result))


def _piece(device: str, seed: int, steps: int, threads: int) -> Callable[[Path, int], Any]:
    def work(directory: Path, _rank: int) -> Any:
        import torch

        torch.set_num_threads(threads)
        return train(Context(device, seed, directory), steps)

    return work


def train(context: Context, steps: int) -> dict[str, list[float]]:
    """The numbers of every step, by name. Raises FloatingPointError for one that is not finite."""
    from datasets import Dataset

    trainer = grpo.make_trainer(
        context,
        save_model(context.directory / "model"),
        Reward(),
        train_dataset=Dataset.from_dict({"prompt": [f"say {chr(ord('A') + i)}" for i in range(32)]}),
        max_steps=steps,
        per_device_train_batch_size=adapter.batch_of(SEQUENCES, GENERATIONS),
        num_generations=GENERATIONS,
        max_completion_length=LENGTH,
        learning_rate=LEARNING_RATE,
        beta=BETA,
        **({"loss_type": "grpo"} if "loss_type" in adapter.known_options() else {}),
    )
    losses = _exact_losses(trainer)
    trainer.train()
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    return numbers(log, losses, steps)


def save_model(directory: Path) -> Path:
    """Save the first policy and its tokenizer in `directory`; returns `directory`."""
    import random

    import torch

    model = tiny.make_model(seed=0)
    draw = random.Random(0)
    contexts = torch.tensor([tiny.draw_tokens(draw, 2 * LENGTH) for _ in range(64)])
    with torch.no_grad():
        usual = model.model(contexts).last_hidden_state[:, LENGTH:].mean((0, 1))
        end = model.lm_head.weight[model.config.eos_token_id]
        end += EARLY_END * usual / usual.dot(usual)
    model.save_pretrained(directory)
    tiny.make_tokenizer().save_pretrained(directory)
    return directory


def _exact_losses(trainer: Any) -> list[float]:
    """A list to which every step appends its loss: transformers 4 logs it with four decimals."""
    losses: list[float] = []
    step = trainer.training_step

    def noted(*arguments: Any, **options: Any) -> Any:
        loss = step(*arguments, **options)
        losses.append(float(loss))
        return loss

    trainer.training_step = noted
    return losses


def numbers(log: list[dict[str, Any]], losses: list[float], steps: int) -> dict[str, list[float]]:
    """The numbers of every step from a trainer's log, by our names, those that this release logs.

    With nine digits, which tell any two float32 apart. Raises FloatingPointError for one that is not finite, and
    ValueError for steps without one.
    """
    curves = {}
    for name, candidates in LOGGED.items():
        found = [next((entry[key] for key in candidates if key in entry), None) for entry in log]
        logged = losses if name == "loss" else [value for value in found if value is not None]
        if not logged and name == "entropy":
            continue
        if len(logged) != steps:
            raise ValueError(f"{name} was logged at {len(logged)} of {steps} steps")
        for step, value in enumerate(logged, 1):
            if not math.isfinite(value):
                raise FloatingPointError(f"{name} is {value} at step {step}")
        curves[name] = [float(f"{value:.9g}") for value in logged]
    return curves
