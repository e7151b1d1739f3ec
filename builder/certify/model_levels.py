"""The levels of the suite's covering array that a model has, by its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ARCHITECTURES = ("qwen2", "llama", "qwen3")
ROPES = ("default", "linear", "llama3")
USUAL_BASE = 10000.0  # of rotary positions


def of(model: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """The levels of a model's config.json. What no level stands for is added to the notes."""
    kind = kind_of_model = str(model.get("model_type", ARCHITECTURES[0]))
    if kind not in ARCHITECTURES:
        notes.append(f"the architecture {kind}: own-architecture trains its twin; the objective is judged on a Qwen2")
        kind = ARCHITECTURES[0]
    return {
        "architecture": kind,
        "heads": _heads(model),
        "rope": _rope(model, notes),
        "embedding": "tied" if model.get("tie_word_embeddings", kind_of_model.startswith("gemma")) else "untied",
    }


def _heads(model: Mapping[str, Any]) -> str:
    """By whether several heads share keys, and whether their size is free."""
    heads = model.get("num_attention_heads")
    if heads and model.get("num_key_value_heads", heads) in (heads, None):
        return "4 on 4 of 16"
    hidden, size = model.get("hidden_size"), model.get("head_dim")
    shared = isinstance(heads, int) and isinstance(hidden, int) and heads > 0 and size == hidden // heads
    return "4 on 2 of 24" if size and not shared else "2 on 1 of 32"


def _rope(model: Mapping[str, Any], notes: list[str]) -> str:
    """The kind of positions. Since Transformers 5 their base is among the same parameters."""
    parameters = model.get("rope_parameters") or model.get("rope_scaling") or {}
    known = parameters if isinstance(parameters, Mapping) else {"type": parameters}
    kind = str(known.get("rope_type") or known.get("type") or "default")
    if kind not in ROPES:
        notes.append(f"positions of the kind {kind}")
        kind = "default"
    base = known.get("rope_theta") or model.get("rope_theta") or USUAL_BASE
    return "base 500" if kind == "default" and base != USUAL_BASE else kind
