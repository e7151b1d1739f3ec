"""Lengths of a run against the positions of its model, where the model is a local folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runtime.check import Check
from runtime.config.names import TRUE, variables
from runtime.config.options import Option
from runtime.config.source import Config

COMPLETION, ENGINE = "max_completion_length", "vllm_max_model_length"
OTHERS = (COMPLETION, "max_prompt_length", "max_length")
LENGTHS = (*OTHERS, ENGINE)
# Models with a table of positions, in which a longer text is an IndexError. The others compute their positions.
TABLES = {"biogpt", "codegen", "ctrl", "gpt2", "gpt_bigcode", "gpt_neo", "gptj", "openai-gpt", "opt"}
SCALED = ("dynamic", "linear", "yarn")  # kinds of RoPE whose factor counts from the positions without it
ALLOWED = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
SCALING = ", or set rope_scaling in its config.json"


def look(config: Config, options: Mapping[str, Option], environ: Mapping[str, str], here: Path) -> Iterator[Check]:
    """A "stop" for a length that vLLM refuses, or that a sampler without an end token reaches and fails; else "advice".

    The other lengths say where a trainer cuts texts and prompts, which may all be shorter.
    """
    try:
        model = json.loads((here / str(config.get("model_name_or_path")) / "config.json").read_bytes())
        limit = _limit(model)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return
    mode = config.get("vllm_mode", options["vllm_mode"].default if "vllm_mode" in options else None)
    vllm, table = str(config.get("use_vllm")).lower() in TRUE, model.get("model_type") in TABLES
    allowed = variables(config, environ).get(ALLOWED, "").lower() in ("1", "true") or "model_max_length" in model
    stops = {ENGINE: not allowed, COMPLETION: table and not vllm}
    harm = "a longer text fails" if table else "it was not trained on longer texts"
    for name in LENGTHS if vllm and mode == "colocate" else OTHERS:
        setting = config.find(name)
        if setting is not None and _number(setting.value) > limit:
            message = f"{config.place(setting)}: {name} is {setting.value}, but the model has {limit} positions"
            if stops.get(name):
                yield Check("stop", message, f"give at most {limit}")
            else:
                yield Check("advice", message, f"{harm}: give at most {limit}{'' if table else SCALING}")


def _limit(model: Mapping[str, Any]) -> int:
    """The positions of a model, with its scaling. Raises KeyError, TypeError, ValueError, AttributeError."""
    positions = int(model["n_positions"] if "n_positions" in model else model["max_position_embeddings"])
    rope = model.get("rope_scaling") or model.get("rope_parameters") or {}
    # Transformers has one, or one for each kind of layer.
    nested = [value for value in rope.values() if isinstance(value, Mapping)]
    return max(positions, *(_scaled(each, positions) for each in nested or [rope]))


def _scaled(rope: Mapping[str, Any], positions: int) -> int:
    kind = rope.get("rope_type") or rope.get("type")
    if kind not in SCALED:
        return 0
    start = rope.get("original_max_position_embeddings") if kind == "yarn" else None
    return int(float(rope.get("factor") or 1) * (start or positions))


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
