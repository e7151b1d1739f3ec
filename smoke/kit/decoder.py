"""A decoder-only language model in plain PyTorch: what the weights of a Qwen2, Qwen3 or Llama model mean.

Written from the papers, without a line of Transformers: RMSNorm (arXiv 1910.07467), rotary positions (arXiv
2104.09864) in the halves of a head, attention with fewer heads for keys and values (arXiv 2305.13245), and the gated
SiLU layer (arXiv 2002.05202). Slow and obvious: no cache, no mask but the causal one, all logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

HIDDEN, INNER, LAYERS = 64, 128, 2
# As Transformers' configurations of all three have it.
EPSILON = 1e-6


@dataclass(frozen=True)
class Shape:
    """What the configuration of a tiny model says beyond the sizes above.

    `rope` is how positions turn: "default", "linear" (positions divided by four) or "llama3" (low frequencies divided
    by four, after Llama 3.1), each from the base `theta`.
    """

    architecture: str = "qwen2"
    heads: int = 2
    key_heads: int = 1
    head_size: int = 32
    theta: float = 10000.0
    rope: str = "default"
    tied: bool = False

    def options(self) -> dict[str, Any]:
        """The options of the model's configuration in Transformers, in the form of releases 4 and 5."""
        scaling: dict[str, dict[str, Any]] = {
            "default": {},
            "linear": {"rope_type": "linear", "factor": FACTOR},
            "llama3": {
                "rope_type": "llama3",
                "factor": FACTOR,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": CONTEXT,
            },
        }
        options = {
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_heads,
            "head_dim": self.head_size,
            "rope_theta": self.theta,
        }
        return {**options, **({"rope_scaling": scaling[self.rope]} if scaling[self.rope] else {})}


# Of the scaled kinds of RoPE. The context is short, so that positions of tiny prompts are on both sides of its edges.
FACTOR, LOW, HIGH, CONTEXT = 4.0, 1.0, 4.0, 64


def logits(shape: Shape, weights: Mapping[str, Any], rows: Sequence[Sequence[int]], pad: int) -> Any:
    """The logits of every token of every row: (rows, longest, vocabulary), in the dtype of the weights.

    `weights` are by their names in Transformers. Rows are padded on the right, which no token before it can see. The
    embedding of the token `pad` gets no gradient, as in Transformers.
    """
    return states(shape, weights, rows, pad) @ weights[head_name(shape)].T


def head_name(shape: Shape) -> str:
    """The name of the weight that turns hidden states into logits."""
    return "model.embed_tokens.weight" if shape.tied else "lm_head.weight"


def states(shape: Shape, weights: Mapping[str, Any], rows: Sequence[Sequence[int]], pad: int) -> Any:
    """The last hidden states, from which logits are computed: (rows, longest, hidden)."""
    import torch

    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
    hidden = torch.nn.functional.embedding(ids, weights["model.embed_tokens.weight"], padding_idx=pad)
    turns = _turns(shape, longest)
    future = torch.ones(longest, longest, dtype=torch.bool).triu(1)
    for layer in range(LAYERS):
        own = {
            name.removeprefix(f"model.layers.{layer}."): weight
            for name, weight in weights.items()
            if name.startswith(f"model.layers.{layer}.")
        }
        hidden = hidden + _attention(shape, own, _norm(hidden, own["input_layernorm.weight"]), turns, future)
        hidden = hidden + _gated(own, _norm(hidden, own["post_attention_layernorm.weight"]))
    return _norm(hidden, weights["model.norm.weight"])


def _norm(hidden: Any, weight: Any) -> Any:
    return weight * hidden / (hidden.square().mean(dim=-1, keepdim=True) + EPSILON).sqrt()


def _gated(own: Mapping[str, Any], hidden: Any) -> Any:
    gate = hidden @ own["mlp.gate_proj.weight"].T
    return (gate * gate.sigmoid() * (hidden @ own["mlp.up_proj.weight"].T)) @ own["mlp.down_proj.weight"].T


def _attention(shape: Shape, own: Mapping[str, Any], hidden: Any, turns: tuple[Any, Any], future: Any) -> Any:
    import torch

    def project(which: str, heads: int) -> Any:
        flat = hidden @ own[f"self_attn.{which}_proj.weight"].T
        if (bias := own.get(f"self_attn.{which}_proj.bias")) is not None:
            flat = flat + bias
        split = flat.unflatten(-1, (heads, shape.head_size))
        if (norm := own.get(f"self_attn.{which}_norm.weight")) is not None:
            split = _norm(split, norm)
        return split

    query = _turn(project("q", shape.heads), turns)
    repeats = shape.heads // shape.key_heads
    key = _turn(project("k", shape.key_heads), turns).repeat_interleave(repeats, dim=2)
    value = project("v", shape.key_heads).repeat_interleave(repeats, dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(shape.head_size)
    shares = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    return torch.einsum("bhqk,bkhd->bqhd", shares, value).flatten(2) @ own["self_attn.o_proj.weight"].T


def _turns(shape: Shape, length: int) -> tuple[Any, Any]:
    """Cosine and sine of every position's angles: (length, 1, half a head), in float64."""
    import torch

    half = torch.arange(0, shape.head_size, 2, dtype=torch.float64)
    speeds = shape.theta ** -(half / shape.head_size)
    if shape.rope == "linear":
        speeds = speeds / FACTOR
    elif shape.rope == "llama3":
        # How many whole turns the original context holds: few of them are slowed down, many are not.
        whole = CONTEXT * speeds / (2 * math.pi)
        kept = ((whole - LOW) / (HIGH - LOW)).clamp(0, 1)
        speeds = kept * speeds + (1 - kept) * speeds / FACTOR
    angles = torch.arange(length, dtype=torch.float64)[:, None, None] * speeds
    return angles.cos(), angles.sin()


def _turn(heads: Any, turns: tuple[Any, Any]) -> Any:
    """Every head, whose first and second half are the two coordinates, turned by its position."""
    import torch

    cosine, sine = turns
    first, second = heads.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


@dataclass(frozen=True)
class Adapter:
    """LoRA as PEFT stores it: what `lora_B @ lora_A` is multiplied with before it is added to a weight.

    `whole` are modules that are trained as a whole beside it (PEFT's modules_to_save).
    """

    rank: int = 4
    alpha: int = 8
    rank_stabilised: bool = False
    whole: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        """alpha / r (arXiv 2106.09685), or alpha / sqrt(r) (arXiv 2312.03732)."""
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)


_PEFT = "base_model.model."
_WHOLE, _ORIGINAL = ".modules_to_save.default.", ".original_module."


def is_adapter(name: str) -> bool:
    """Whether a parameter of a PeftModel is the adapter's own, which alone is trained."""
    return ".lora_" in name or _WHOLE in name


def plain(parameters: Mapping[str, Any], adapter: Adapter | None, *, without: bool = False) -> dict[str, Any]:
    """The weights by their names in Transformers, from those of a model that may be inside a PeftModel.

    With the adapter's product added, unless `without` it.
    """
    if adapter is None:
        return dict(parameters)
    weights = {}
    for name, weight in parameters.items():
        if ".lora_" in name or (_WHOLE if without else _ORIGINAL) in name:
            continue
        layer, is_base, _ = name.partition(".base_layer.weight")
        own = name.removeprefix(_PEFT).replace(".base_layer", "").replace(_WHOLE, ".").replace(_ORIGINAL, ".")
        if is_base and not without:
            down, up = (parameters[f"{layer}.lora_{which}.default.weight"] for which in "AB")
            weights[own] = weight + adapter.scale * up @ down
        else:
            weights[own] = weight
    return weights
