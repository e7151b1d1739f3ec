"""The tiny twin of a model: its configuration with the same features and small sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from smoke.kit import tiny

HEAD, LAYERS, MOST_LAYERS, MOST_HEADS, WINDOW, POSITIONS, EXPERTS = 16, 2, 8, 16, 8, 512, 4
# What belongs to the files of the large model, or to its size alone.
_DROPPED = (
    "_name_or_path", "architectures", "auto_map", "quantization_config", "torch_dtype", "dtype", "transformers_version",
    "model_type", "max_window_layers", "layer_types", "sliding_window", "no_rope_layers", "attn_implementation",
    "_attn_implementation", "tokenizer_class", "pretraining_tp", "id2label", "label2id", "task_specific_params",
)  # fmt: skip
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_ACTIVE = ("num_experts_per_tok", "num_experts_per_token")
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 16}


REASONS = REMOTE, MORE, LACKS, UNFIT = (
    "no tiny twin: the model's code is not part of Transformers (auto_map in its config.json)",
    "no tiny twin: the model takes more than text",
    "no tiny twin: its config.json does not say how many heads, layers or hidden units it has",
    "no tiny twin: small sizes of this model do not fit together; the log has the error",
)


class NoTwinError(Exception):
    """There is no twin, for one of the reasons; the message has what exactly."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(f"{reason}: {what}")
        self.reason = reason


def configuration(large: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the twin, as keywords of its class, from a config.json. Raises NoTwinError."""
    nested = [key for key in ("text_config", "llm_config", "language_config") if isinstance(large.get(key), Mapping)]
    if nested:
        raise NoTwinError(MORE, nested[0])
    heads = _positive(large, "num_attention_heads")
    hidden, layers = _positive(large, "hidden_size"), _positive(large, "num_hidden_layers")
    kept = {name: value for name, value in large.items() if name not in _DROPPED}
    key_heads = large.get("num_key_value_heads") or heads
    ratio = max(1, heads // key_heads)
    own_keys = 2 if key_heads > 1 and 2 * ratio <= MOST_HEADS else 1
    own_heads = min(own_keys * ratio, MOST_HEADS)
    # Models whose heads are not a share of the width say how wide a head is.
    free = large.get("head_dim") not in (None, hidden // heads)
    width = 4 * HEAD if free else own_heads * HEAD
    kept |= {
        "vocab_size": len(tiny.VOCABULARY), "hidden_size": width, "intermediate_size": 2 * width,
        "num_attention_heads": own_heads, "max_position_embeddings": POSITIONS, "initializer_range": 0.1,
        "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None,
    }  # fmt: skip
    if "num_key_value_heads" in large:
        kept["num_key_value_heads"] = own_keys if key_heads != heads else own_heads
    if "head_dim" in large:
        # Of latent attention, it is the part that turns.
        kept["head_dim"] = _LATENT["qk_rope_head_dim"] if large.get("qk_rope_head_dim") else HEAD
    kept |= {name: size for name, size in _LATENT.items() if large.get(name)}
    kept |= {name: min(EXPERTS, large[name]) for name in _EXPERTS if large.get(name)}
    kept |= {name: min(2, large[name]) for name in _ACTIVE if large.get(name)}
    experts = ("expert_intermediate_size", "moe_intermediate_size")
    kept |= {name: 2 * HEAD for name in large if name.endswith(experts) and large[name]}
    kept |= {name: 1 for name in ("n_group", "topk_group", "first_k_dense_replace") if large.get(name)}
    if large.get("query_pre_attn_scalar"):
        kept["query_pre_attn_scalar"] = HEAD
    kept |= {name: 0.0 for name in large if name.endswith(("dropout", "pdrop"))}
    kept |= _layers(large, layers)
    if large.get("sliding_window"):
        kept["sliding_window"] = WINDOW
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(large.get(name), Mapping):
            partial = float(large.get("partial_rotary_factor") or 1)
            kept[name] = _rope(large[name], large.get("max_position_embeddings") or POSITIONS, int(HEAD * partial) // 2)
    return kept


def make(large: Mapping[str, Any], seed: int) -> Any:
    """The twin, with random weights, in float32. Raises NoTwinError, and ValueError for an unknown model type."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = str(large.get("model_type"))
    if kind not in CONFIG_MAPPING:
        if large.get("auto_map"):
            raise NoTwinError(REMOTE, kind)
        raise ValueError(f"this Transformers does not know the model type {kind}; a later one may")
    torch.manual_seed(seed)
    try:
        config = CONFIG_MAPPING[kind](**configuration(large))
        model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)
        with torch.no_grad():
            model.eval()(input_ids=torch.arange(4, 20)[None], use_cache=False)
    except NoTwinError:
        raise
    except Exception as error:  # whatever a model's code makes of sizes that do not fit together
        raise NoTwinError(UNFIT, f"{type(error).__name__}: {error}") from error
    return model.train()


def _positive(large: Mapping[str, Any], name: str) -> int:
    value = large.get(name)
    if type(value) is not int or value < 1:
        raise NoTwinError(LACKS, name)
    return value


def _layers(large: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """As many layers as it takes to have each kind, if these are few."""
    kinds = large.get("layer_types")
    # Such as sliding_window_pattern, a number or letters, and full_attention_interval.
    periods = [n for name, n in large.items() if name.endswith(("_pattern", "_interval", "_period"))]
    count = max([LAYERS, *(len(n) for n in periods if isinstance(n, str)), *(n for n in periods if type(n) is int)])
    if isinstance(kinds, list) and kinds:
        count = max(count, max(map(kinds.index, dict.fromkeys(kinds))) + 1)
    count = min(count, MOST_LAYERS, max(layers, LAYERS))
    chosen: dict[str, Any] = {"num_hidden_layers": count}
    if isinstance(kinds, list) and kinds:
        chosen["layer_types"] = (kinds * count)[:count]
    if "max_window_layers" in large:
        chosen["max_window_layers"] = count - 1
    return chosen


def _rope(scaling: Mapping[str, Any], positions: int, turns: int) -> dict[str, Any]:
    """The same kind of positions, for a shorter context."""
    if any(isinstance(value, Mapping) for value in scaling.values()):  # one for each kind of layer
        return {
            name: _rope(value, positions, turns) if isinstance(value, Mapping) else value
            for name, value in scaling.items()
        }
    short = dict(scaling)
    if original := scaling.get("original_max_position_embeddings"):
        short["original_max_position_embeddings"] = max(8, math.ceil(POSITIONS * original / max(positions, original)))
    for name in ("short_factor", "long_factor"):
        if isinstance(scaling.get(name), list):
            short[name] = scaling[name][:turns]
    return short
