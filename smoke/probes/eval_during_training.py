"""Does evaluation during training measure the current policy, and leave the training unchanged?

Catches evaluations that fail or mislead: a trainer without its own prediction_step calls the model with arguments that
it cannot take, evaluation metrics are mixed with those of training, the model stays in the wrong mode, a sampler still
has the weights of an earlier step.

Trains twice, without evaluation and with one every other step. Random states are restored after an evaluation, so both
runs must be equal bit for bit. Every evaluation has to request each prompt once per generation, and to log the mean of
the rewards. At the end the policy is replaced by another one, and the samples of an evaluation must be likely under the
new one. Needs one process.
"""

from __future__ import annotations

import collections
import math
import random
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoke.kit import adapter, extremes, grpo, tiny
from smoke.kit.policy import completion_logprobs
from smoke.probe import Bound, Context, Probe, Reading

STEPS, EVERY = 4, 2
PROMPTS = 6
GENERATIONS = 4

PROBE = Probe(
    matters="evaluation selects the best checkpoint, and training continues from the state that it leaves behind",
    bounds=(
        Bound("evaluations", "evaluations logged with a reward: one every other step", equals=STEPS // EVERY),
        Bound(
            "eval_reward_error",
            "the logged reward against the mean of the rewards: 7.1e-10 to 1.8e-8 over 12 seeds, the rounding "
            "of float32; 0.04 when only the last batch counts",
            at_most=1e-5,
            headline=True,
        ),
        Bound(
            "eval_prompts_wrong",
            f"each of {PROMPTS} prompts is asked for {GENERATIONS} times in each evaluation: 0 over 12 seeds",
            "prompts",
            equals=0,
        ),
        Bound(
            "wrong_mode",
            "batches of training while the model is in evaluation mode, or the other way round: 0 over 12 seeds",
            "batches",
            equals=0,
        ),
        Bound(
            "training_changed",
            "what is logged of the steps, and parameters at the end, against the run without evaluations: 0 over 12 "
            "seeds, the same bits; 31 to 33 when an evaluation moves a counter, a moment or a gradient, 1 or more when "
            "it takes metrics along",
            "numbers",
            equals=0,
        ),
        Bound(
            "new_policy_gain",
            "how much more likely the sampled tokens are under the new policy than under the old one: 1.5 to 2.9 over "
            "12 seeds; -0.5 when the old one samples",
            "nats",
            at_least=0.5,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/pull/2694",
        "https://github.com/huggingface/trl/pull/3337",
        "https://github.com/huggingface/trl/issues/4010",
    ),
    needs=("torch", "transformers", "datasets", "trl"),
    gpus=1,
)


@dataclass(frozen=True)
class Batch:
    """One call of the reward, and the mode that the model was in."""

    part: str
    prompts: list[str]
    completions: list[str]
    rewards: list[float]
    training: bool


class Reward(grpo.Reward):
    """A reward that tells training and evaluation apart by a column of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Batch] = []
        self.trainer: Any = None

    def __call__(self, completions: list[str], **columns: Any) -> list[float]:
        rewards = super().__call__(completions)
        (part,) = set(columns["part"])
        self.calls.append(Batch(part, columns["prompts"], completions, rewards, self.trainer.model.training))
        return rewards


def run(context: Context) -> Iterator[Reading]:
    """Train without and with evaluations; then evaluate another policy."""
    model = tiny.save(context.directory / "model", context.seed)
    alone, _ = _train(context, model)
    trainer, reward = _train(
        context, model, eval_strategy="steps", eval_steps=EVERY, eval_dataset=_prompts("eval", PROMPTS)
    )
    logged = [entry["eval_reward"] for entry in trainer.state.log_history if "eval_reward" in entry]
    yield Reading("evaluations", len(logged), f"logged {trainer.state.log_history}")
    batches = [batch for batch in reward.calls if batch.part == "eval"]
    size = len(batches) // max(1, len(logged))
    evaluations = [batches[i : i + size] for i in range(0, len(batches), size)]
    means = [statistics.fmean(reward for batch in evaluation for reward in batch.rewards) for evaluation in evaluations]
    errors = [abs(a - b) for a, b in zip(means, logged, strict=False)]
    yield Reading("eval_reward_error", extremes.largest(errors, default=math.nan), f"given {means}, logged {logged}")
    wrong = [text for evaluation in evaluations for text in _wrong(evaluation)]
    yield Reading("eval_prompts_wrong", len(wrong), ", ".join(wrong))
    switched = [
        f"{batch.part} batch {i}" for i, batch in enumerate(reward.calls) if batch.training != (batch.part == "train")
    ]
    yield Reading("wrong_mode", len(switched), ", ".join(switched))
    changed = list(_differences(alone, trainer))
    yield Reading("training_changed", len(changed), ", ".join(changed))
    yield Reading("new_policy_gain", _new_policy_gain(trainer, reward, context.seed + 1))


def _prompts(part: str, count: int) -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": f"{part} {chr(ord('a') + i)}", "part": part} for i in range(count)])


def _train(context: Context, model: Path, **options: Any) -> tuple[Any, Reward]:
    reward = Reward()
    trainer = grpo.make_trainer(
        context,
        model,
        reward,
        train_dataset=_prompts("train", 8),
        max_steps=STEPS,
        num_generations=GENERATIONS,
        per_device_train_batch_size=adapter.batch_of(GENERATIONS, GENERATIONS),
        # What the second pass of a step trains on waits in a buffer.
        gradient_accumulation_steps=2,
        per_device_eval_batch_size=adapter.batch_of(2 * GENERATIONS, GENERATIONS),
        max_completion_length=8,
        **options,
    )
    reward.trainer = trainer
    _keep_random_states(trainer)
    trainer.train()
    return trainer, reward


def _keep_random_states(trainer: Any) -> None:
    """Restore the random states after an evaluation."""
    import numpy
    import torch
    from transformers import TrainerCallback

    class Keep(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
            self.states = random.getstate(), numpy.random.get_state(), torch.get_rng_state(), cuda

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            python, array, cpu, cuda = self.states
            random.setstate(python)
            numpy.random.set_state(array)
            torch.set_rng_state(cpu)
            torch.cuda.set_rng_state_all(cuda)

    trainer.add_callback(Keep())


def _wrong(batches: list[Batch]) -> Iterator[str]:
    """The prompts that one evaluation did not request once per generation, with their counts."""
    counts = collections.Counter(prompt for batch in batches for prompt in batch.prompts)
    for prompt in dict.fromkeys((*_prompts("eval", PROMPTS)["prompt"], *counts)):
        if counts[prompt] != GENERATIONS:
            yield f"{prompt!r} {counts[prompt]} times"


def _differences(alone: Any, evaluated: Any) -> Iterator[str]:
    """Where two runs differ: what they logged of their steps, and their parameters at the end."""
    import torch

    def steps(trainer: Any) -> list[dict[str, float]]:
        return [entry for entry in trainer.state.log_history if "loss" in entry]

    for a, b in zip(steps(alone), steps(evaluated), strict=True):
        for key in ("loss", "grad_norm", "learning_rate", "reward", "reward_std"):
            # As log, TRL 0.16 takes the step before an evaluation for a part of it.
            if a.get(key) != b.get(key):
                yield f"{key} of step {a['step']}: {a.get(key)} became {b.get(key)}"
    before: Mapping[str, Any] = grpo.snapshot(alone.model)
    for name, parameter in grpo.snapshot(evaluated.model).items():
        if not torch.equal(parameter, before[name]):
            yield f"{name} by up to {(parameter - before[name]).abs().max().item():.3g}"


def _new_policy_gain(trainer: Any, reward: Reward, seed: int) -> float:
    """Replace the policy and evaluate: how much more likely are the samples under the new policy than under the old?"""
    tokenizer = tiny.make_tokenizer()
    policy = trainer.accelerator.unwrap_model(trainer.model)
    old = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    new = {name: tensor.to(policy.device) for name, tensor in tiny.make_model(seed).state_dict().items()}
    new["lm_head.weight"] *= 2  # so that it is surer of its tokens
    policy.load_state_dict(new)
    count = len(reward.calls)
    trainer.evaluate()
    pairs = [
        (tokenizer(prompt).input_ids, tokenizer(completion).input_ids)
        for batch in reward.calls[count:]
        for prompt, completion in zip(batch.prompts, batch.completions, strict=True)
        if completion
    ]
    means = []
    for weights in (new, old):
        policy.load_state_dict(weights)
        means.append(statistics.fmean(completion_logprobs(policy, *pair).mean().item() for pair in pairs))
    return means[0] - means[1]
