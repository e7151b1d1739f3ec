"""The one place that knows how TRL's GRPO differs between the releases 0.14 and 1.16.

Differences are found by looking at what is there, not by comparing version numbers: that also serves a patched
release. Every function says which releases do what.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from smoke.kit import tiny
from smoke.probe import Skip

# Why a probe of vLLM in the trainer's process may have nothing to ask.
SERVER_ONLY = Skip("this TRL runs vLLM only as a server of its own", versions={"trl": ">=0.16,<0.18"})
SYNCHRONISES_IN_LOSS = Skip("this TRL synchronises in the middle of its loss", versions={"trl": "<0.15"})


def known_options() -> set[str]:
    """The names of GRPOConfig's options in this release."""
    from trl import GRPOConfig

    return {field.name for field in dataclasses.fields(GRPOConfig)}


def averages() -> dict[str, str]:
    """What the loss averages over (see smoke.kit.reference), by the loss_type that asks for it.

    Up to 0.16 there is no such option, here called "": each sequence, then all of them, up to 0.15, and all tokens in
    0.16. Since 0.17 one may choose; "dapo" came with 0.22.
    """
    from trl import GRPOTrainer

    options = known_options()
    if "loss_type" not in options:
        # 0.16 brought the iterations, and the mean over tokens.
        return {"": "token" if "num_iterations" in options else "sequence"}
    known = {"grpo": "sequence", "bnpo": "token", "dr_grpo": "length", "dapo": "token"}
    constants = _constants(inspect.unwrap(GRPOTrainer._compute_loss).__code__.co_consts)
    return {name: average for name, average in known.items() if name in constants}


def kl_average() -> str:
    """What the logged KL divergence is a mean over, by the names of `averages`: all tokens since 0.16."""
    return "token" if "num_iterations" in known_options() else "sequence"


def _constants(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from _constants(value) if isinstance(value, tuple) else (value,)


def batch_of(sequences: int, generations: int) -> int:
    """The `per_device_train_batch_size` that gives a device `sequences` completions a step.

    It counts completions since 0.15 (whose sampler repeats each prompt), and prompts in 0.14.
    """
    from trl import GRPOTrainer

    return sequences if "_get_train_sampler" in vars(GRPOTrainer) else sequences // generations


def largest_group(rows: int, ranks: int, micro_batches: int) -> int:
    """How many completions of one prompt a step can have: of `rows` in each micro-batch of each rank.

    Those of all since 0.18, which generates for all micro-batches at once; those of all ranks since 0.15; in 0.14
    those of one micro-batch.
    """
    if "steps_per_generation" in known_options():
        return rows * ranks * micro_batches
    return rows if batch_of(rows, rows) == 1 else rows * ranks


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
    return _nested_function(type(trainer).compute_loss, "get_per_token_logps")(model, ids, keep)


def _nested_function(outer: Any, name: str) -> Any:
    """The function `name` that `outer` defines inside itself: the same code, which must not use `outer`'s variables."""
    codes = [code for code in outer.__code__.co_consts if getattr(code, "co_name", None) == name]
    if len(codes) != 1 or codes[0].co_freevars:
        raise NotImplementedError(f"{outer.__qualname__} has no function {name} that could be called from outside")
    return types.FunctionType(codes[0], outer.__globals__)


def sync_weights(trainer: Any) -> None:
    """Push the trainer's weights into vLLM, the way the trainer does it. Raises NotApplicable in 0.14, whose loss does.

    A method of the trainer's, and since 0.29 of the object that it asks for completions.
    """
    if generation := getattr(trainer, "vllm_generation", None):
        generation.sync_weights()
    elif hasattr(trainer, "_move_model_to_vllm"):
        trainer._move_model_to_vllm()
    else:
        raise SYNCHRONISES_IN_LOSS()


def sampler(trainer: Any) -> Any:
    """The trainer's in-process vLLM engine, a vllm.LLM."""
    return getattr(trainer, "vllm_generation", trainer).llm


def colocated(device: str) -> dict[str, Any]:
    """The options for vLLM inside the trainer's process. Raises NotApplicable where TRL cannot do that.

    Since 0.18 it is a mode; 0.16 and 0.17 know only a server; up to 0.15 it is the only way, and by default on the
    next GPU.
    """
    known = known_options()
    if "vllm_mode" in known:
        return {"use_vllm": True, "vllm_mode": "colocate"}
    if "vllm_server_host" in known:
        raise SERVER_ONLY()
    return {"use_vllm": True, "vllm_device": "cuda:0" if device == "cuda" else device}


def engine_module() -> Any:
    """The module in which the trainer looks up vLLM's class LLM: its own, or since 0.29 one that it asks."""
    try:
        return importlib.import_module("trl.generation.vllm_generation")
    except ModuleNotFoundError:
        return importlib.import_module("trl.trainer.grpo_trainer")


def warmup(share: float) -> dict[str, float]:
    """The option for a warm-up over this share of all steps.

    It is warmup_ratio up to transformers 4, and warmup_steps, when below 1, where that option is gone.
    """
    return {"warmup_ratio" if "warmup_ratio" in known_options() else "warmup_steps": share}


def cli_reward(directory: Path, function: str, seed: int) -> dict[str, Any]:
    """The option of `trl grpo` that names a reward: the import path `function`, where the command takes one.

    Up to 0.19 it takes a reward model only: a tiny one with random weights is saved in `directory` then.
    """
    from trl.scripts import grpo

    if "reward_funcs" in {field.name for field in dataclasses.fields(grpo.GRPOScriptArguments)}:
        return {"reward_funcs": [function]}
    return {"reward_model_name_or_path": str(tiny.save_classifier(directory / "reward", seed))}


def dtype(name: str) -> dict[str, Any]:
    """The option of from_pretrained for a model's dtype: torch_dtype up to transformers 4.55, then dtype."""
    import torch
    from transformers import PretrainedConfig

    return {"dtype" if hasattr(PretrainedConfig(), "dtype") else "torch_dtype": getattr(torch, name)}


def allow_4bit_on_cpu() -> None:
    """Load 4-bit models on any CPU.

    Up to 4.52, transformers refuses all but those with Intel's extension; what bitsandbytes needs, it ships itself.
    """
    from transformers.integrations import bitsandbytes

    if hasattr(bitsandbytes, "is_ipex_available"):
        bitsandbytes.is_ipex_available = lambda: True
