"""The one place that knows how TRL's GRPO differs between the releases 0.14 and 1.16.

It detects features, not version numbers, so that it works with patched releases too. Every function says which
releases do what.
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

# Why a probe of vLLM in the trainer's process may not apply.
SERVER_ONLY = Skip("this TRL runs vLLM only as a server of its own", versions={"trl": ">=0.16,<0.18"})
SYNCHRONISES_IN_LOSS = Skip("this TRL synchronises in the middle of its loss", versions={"trl": "<0.15"})


def known_options() -> set[str]:
    """The names of the options of this release's GRPOConfig."""
    from trl import GRPOConfig

    return {field.name for field in dataclasses.fields(GRPOConfig)}


def averages() -> dict[str, str]:
    """What the loss averages over (see smoke.kit.reference), by loss_type.

    Up to 0.16 there is no such option, and the key is "": the mean is per sequence, then over sequences, up to 0.15,
    and over all tokens in 0.16. Since 0.17 there is a choice; "dapo" came with 0.22.
    """
    from trl import GRPOTrainer

    options = known_options()
    if "loss_type" not in options:
        # 0.16 brought the iterations, and the mean over tokens.
        return {"": "token" if "num_iterations" in options else "sequence"}
    loss_types = {"grpo": "sequence", "bnpo": "token", "dr_grpo": "length", "dapo": "token"}
    constants = _constants(inspect.unwrap(GRPOTrainer._compute_loss).__code__.co_consts)
    return {name: average for name, average in loss_types.items() if name in constants}


def losses() -> set[str]:
    """The values of loss_type that this release's loss knows."""
    from trl import GRPOTrainer

    if "loss_type" not in known_options():
        return set()
    constants = set(map(str, _constants(inspect.unwrap(GRPOTrainer._compute_loss).__code__.co_consts)))
    return constants & {"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"}


def kl_average() -> str:
    """What the logged KL divergence is averaged over, in the terms of `averages`: all tokens since 0.16."""
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
    """The largest number of completions of one prompt in a step, with `rows` per micro-batch and rank.

    All completions since 0.18, which generates for all micro-batches at once; those of one micro-batch of all ranks
    since 0.15; those of one micro-batch of one rank in 0.14.
    """
    if "steps_per_generation" in known_options():
        return rows * ranks * micro_batches
    return rows if batch_of(rows, rows) == 1 else rows * ranks


def token_logprobs(trainer: Any, model: Any, ids: Any, mask: Any, keep: int) -> Any:
    """The log-probabilities that the trainer computes for the last `keep` tokens: (batch, keep), in nats.

    `ids` and `mask` are (batch, length). Up to 0.14 a function inside compute_loss, which takes no mask; then
    _get_per_token_logps; since 0.20 _get_per_token_logps_and_entropies, which returns a dict or a tuple.
    """
    for name in ("_get_per_token_logps_and_entropies", "_get_per_token_logps"):
        if method := getattr(trainer, name, None):
            result = method(model, ids, mask, keep)
            if isinstance(result, dict):
                return result["logps"]
            return result[0] if isinstance(result, tuple) else result
    return _nested_function(type(trainer).compute_loss, "get_per_token_logps")(model, ids, keep)


def _nested_function(outer: Any, name: str) -> Any:
    """The function `name` defined inside `outer`. Its code must not use variables of `outer`."""
    codes = [code for code in outer.__code__.co_consts if getattr(code, "co_name", None) == name]
    if len(codes) != 1 or codes[0].co_freevars:
        raise NotImplementedError(f"{outer.__qualname__} has no function {name} that could be called from outside")
    return types.FunctionType(codes[0], outer.__globals__)


def sync_weights(trainer: Any) -> None:
    """Synchronise the trainer's weights to vLLM as the trainer does. Raises NotApplicable in 0.14, whose loss does it.

    A method of the trainer, and since 0.29 of its generation object.
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
    """The options for vLLM inside the trainer's process. Raises NotApplicable if this TRL cannot do that.

    Since 0.18 it is a mode; 0.16 and 0.17 support a server only; up to 0.15 it is the only way, by default on the next
    GPU.
    """
    known = known_options()
    if "vllm_mode" in known:
        return {"use_vllm": True, "vllm_mode": "colocate"}
    if "vllm_server_host" in known:
        raise SERVER_ONLY()
    return {"use_vllm": True, "vllm_device": "cuda:0" if device == "cuda" else device}


def engine_module() -> Any:
    """The module where the trainer looks up vLLM's class LLM: its own module, since 0.29 vllm_generation."""
    try:
        return importlib.import_module("trl.generation.vllm_generation")
    except ModuleNotFoundError:
        return importlib.import_module("trl.trainer.grpo_trainer")


def warmup(share: float) -> dict[str, float]:
    """The option for a warm-up over this share of all steps.

    warmup_ratio up to transformers 4, later warmup_steps with a value below 1.
    """
    return {"warmup_ratio" if "warmup_ratio" in known_options() else "warmup_steps": share}


def cli_reward(directory: Path, function: str, seed: int) -> dict[str, Any]:
    """The option of `trl grpo` for the reward: the import path `function`, if the command takes one.

    Up to 0.19 it takes a reward model only: then a tiny one with random weights is saved in `directory`.
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
    """Allow 4-bit models on any CPU.

    Up to 4.52, transformers requires Intel's extension, which bitsandbytes does not need.
    """
    from transformers.integrations import bitsandbytes

    if hasattr(bitsandbytes, "is_ipex_available"):
        bitsandbytes.is_ipex_available = lambda: True
