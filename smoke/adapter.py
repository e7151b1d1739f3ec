"""The one place that knows how TRL's GRPO differs between the releases 0.14 and 1.16.

Differences are found by looking at what is there, not by comparing version numbers: that also serves a patched
release. Every function says which releases do what.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def known_options() -> set[str]:
    """The names of GRPOConfig's options in this release."""
    from trl import GRPOConfig

    return {field.name for field in dataclasses.fields(GRPOConfig)}


def batch_of(sequences: int, generations: int) -> int:
    """The `per_device_train_batch_size` that gives a device `sequences` completions a step.

    It counts completions since 0.15 (whose sampler repeats each prompt), and prompts in 0.14.
    """
    from trl import GRPOTrainer

    return sequences if "_get_train_sampler" in vars(GRPOTrainer) else sequences // generations


def token_logprobs(trainer: Any, model: Any, ids: Any, mask: Any, keep: int) -> Any:
    """The log-probabilities that the trainer gives the last `keep` tokens: (batch, keep), in nats.

    `ids` and `mask` are (batch, length). A function inside compute_loss up to 0.14, which takes no mask; then
    _get_per_token_logps; since 0.20 _get_per_token_logps_and_entropies, with a dict or a tuple as its result.
    """
    for name in ("_get_per_token_logps_and_entropies", "_get_per_token_logps"):
        if method := getattr(trainer, name, None):
            result = method(model, ids, mask, keep)
            if isinstance(result, dict):
                return result["logps"]
            return result[0] if isinstance(result, tuple) else result
    raise NotImplementedError("this TRL has no _get_per_token_logps* method to ask")


def sync_weights(trainer: Any) -> None:
    """Push the trainer's weights into vLLM, the way the trainer does it."""
    if generation := getattr(trainer, "vllm_generation", None):
        generation.sync_weights()
    else:
        trainer._move_model_to_vllm()


def sampler(trainer: Any) -> Any:
    """The trainer's in-process vLLM engine, a vllm.LLM."""
    return getattr(trainer, "vllm_generation", trainer).llm
