"""Runs over the options of GRPO, drawn from a seed: unless one has nothing to learn from, it may raise no alarm."""

from __future__ import annotations

import random
from typing import Any

# Options and the values that are drawn; None is TRL's default.
AXES: dict[str, tuple[Any, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    "num_iterations": (1, 1, 2, 3),
    "gradient_accumulation_steps": (1, 2, 4),
    "steps_per_generation": (None, 1, 2, 4),
    "beta": (0.0, 0.04, 0.2),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "temperature": (0.7, 1.0, 1.3),
    "truncation": ({}, {}, {}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.05}),
    "max_completion_length": (4, 12, 24),
    "mask_truncated_completions": (False, False, True),
    "num_generations": (2, 4, 8),
    "learning_rate": (1e-5, 1e-3, 3e-3),
    "schedule": (
        {"lr_scheduler_type": "constant"}, {"lr_scheduler_type": "linear"},
        {"lr_scheduler_type": "cosine", "warmup_steps": 3},
    ),
    "optim": ("adamw_torch", "adamw_torch", "adafactor", "sgd"),
    "gradient_checkpointing": (False, True),
    "bf16": (False, False, True),
    "max_grad_norm": (1.0, 0.1, 0.0),
    "use_bias_correction_kl": (False, False, True),
    "top_entropy_quantile": (1.0, 1.0, 0.5),
    "evaluation": ({}, {}, {"eval_strategy": "steps", "eval_steps": 4, "per_device_eval_batch_size": 8}),
}  # fmt: skip
REWARDS = (
    ["share_of_letters"], ["length"], ["right_or_wrong"], ["sometimes", "share_of_letters"], ["sometimes"],
    ["length", "share_of_letters"],
)  # fmt: skip
MODELS: tuple[dict[str, Any], ...] = (
    {},
    {"architecture": "llama"},
    {"tied": True},
    {"architecture": "llama", "tied": True},
)
ADAPTERS = (None, None, {"r": 4}, {"r": 8, "lora_dropout": 0.05})


def jobs(number: int, first: int = 0) -> list[dict[str, Any]]:
    """The jobs from the first on: job k is the same however many there are."""
    return [_job(k) for k in range(first, first + number)]


def _job(k: int) -> dict[str, Any]:
    draw = random.Random(f"monitor {k}")
    options: dict[str, Any] = {}
    for name, values in AXES.items():
        value = draw.choice(values)
        options.update(value if isinstance(value, dict) else {name: value} if value is not None else {})
    rewards = draw.choice(REWARDS)
    if len(rewards) > 1:
        options["reward_weights"] = [1.0, 0.5]
    if options["mask_truncated_completions"]:
        options["max_completion_length"] = 64  # tiny models seldom end, and a loss without tokens is an alarm
    job = {
        "name": f"healthy-{k}", "seed": 100 + k, "options": options, "rewards": rewards, "model": draw.choice(MODELS),
    }  # fmt: skip
    adapter = draw.choice(ADAPTERS)
    if adapter:
        job["lora"] = adapter
    if k % 10 == 3:
        job["ranks"] = 2
    if k % 5 == 4:  # every fifth with an engine
        job["sampler"] = "standin"
        options["max_completion_length"] = min(12, options["max_completion_length"])
        options["mask_truncated_completions"] = False
        if options["loss_type"] == "vespo":  # TRL refuses the default, a ratio of sequences
            options["vllm_importance_sampling_mode"] = "token_truncate"
    return job
