"""The sizes of a model, from its config.json and the headers of its safetensors files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER = 64 * 1024 * 1024  # bytes: a longer one is not read
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class Architecture:
    """A decoder with gated MLPs, as Llama, Qwen, Mistral, Gemma and their mixtures of experts are.

    `queries` and `keys` are the widths of attention: heads x the size of a head. `dense` layers have one MLP; the
    others have `experts` of the width `expert`, of which a token takes `active`, and one of the width `shared`.
    """

    hidden: int
    layers: int
    queries: int
    keys: int
    intermediate: int
    vocabulary: int
    tied: bool
    experts: int = 0
    expert: int = 0
    active: int = 0
    shared: int = 0
    dense: int = 0
    dtype: str = "float32"  # of the checkpoint
    counted: int | None = None  # parameters, by the files

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The matrices of a dense layer: inputs and outputs."""
        hidden, wide = self.hidden, self.intermediate
        return {
            "q_proj": (hidden, self.queries), "k_proj": (hidden, self.keys), "v_proj": (hidden, self.keys),
            "o_proj": (self.queries, hidden), "gate_proj": (hidden, wide), "up_proj": (hidden, wide),
            "down_proj": (wide, hidden),
        }  # fmt: skip

    @property
    def attention(self) -> int:
        return self.hidden * (2 * self.queries + 2 * self.keys)

    @property
    def dense_layer(self) -> int:
        return self.attention + 3 * self.hidden * self.intermediate

    @property
    def sparse_layer(self) -> int:
        return self.attention + self.hidden * (3 * self.expert * self.experts + self.experts + 3 * self.shared)

    @property
    def largest_layer(self) -> int:
        return max(self.dense_layer if self.dense else 0, self.sparse_layer if self.dense < self.layers else 0)

    @property
    def embeddings(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        layers = self.dense * self.dense_layer + (self.layers - self.dense) * self.sparse_layer
        return self.counted or layers + self.embeddings

    def adapter(self, rank: int, targets: tuple[str, ...] | None) -> int:
        """The parameters of LoRA on these matrices; None: on all of them. Experts get one each only then."""
        size = 0
        for name, (inputs, outputs) in self.shapes.items():
            if targets is not None and name not in targets:
                continue
            if name in ATTENTION:
                size += self.layers * (inputs + outputs)
            else:
                size += self.dense * (inputs + outputs)
                width = self.experts * (self.hidden + self.expert) + bool(self.shared) * (self.hidden + self.shared)
                size += (self.layers - self.dense) * width
        return rank * size

    def activations(self) -> int:
        """Numbers that a layer keeps of one token for its backward pass. Attention keeps no scores: it is fused."""
        around = 4 * self.hidden + 3 * self.queries + 3 * self.keys
        dense = around + 4 * self.intermediate
        sparse = around + 4 * self.active * (self.hidden + self.expert) + 4 * self.shared
        return max(dense if self.dense else 0, sparse if self.dense < self.layers else 0)


def read(folder: Path) -> Architecture | None:
    """The sizes of the model in a folder; None if it has no config.json, or one of another kind."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        shape = of_config(config)
        counted = _counted(folder)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ZeroDivisionError):
        return None
    if shape.experts or not counted:
        return shape
    return Architecture(**{**shape.__dict__, "counted": counted})


def of_config(config: Mapping[str, Any]) -> Architecture:
    """Raises KeyError, ValueError or TypeError for a model of another kind."""
    config = {**config, **config.get("text_config", {})}
    heads, hidden, layers = (int(config[key]) for key in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
    size = int(config.get("head_dim") or hidden // heads)
    experts = next((int(config[name]) for name in EXPERTS if config.get(name)), 0)
    wide = int(config["intermediate_size"])
    expert = int(config.get("moe_intermediate_size") or wide)
    shared = int(config.get("shared_expert_intermediate_size") or 0)
    shared = shared or expert * int(config.get("n_shared_experts") or config.get("num_shared_experts") or 0)
    first = int(config.get("first_k_dense_replace") or len(config.get("mlp_only_layers") or ()))
    shape = Architecture(
        hidden=hidden,
        layers=layers,
        queries=heads * size,
        keys=int(config.get("num_key_value_heads") or heads) * size,
        intermediate=wide,
        vocabulary=int(config["vocab_size"]),
        tied=config.get("tie_word_embeddings", True) is True,
        experts=experts,
        expert=expert if experts else 0,
        active=int(config.get("num_experts_per_tok") or 1) if experts else 0,
        shared=shared if experts else 0,
        dense=min(first, layers) if experts else layers,
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "float32"),
    )
    if min(hidden, layers, heads, shape.vocabulary, wide) < 1:
        raise ValueError("a size is not positive")
    return shape


def _counted(folder: Path) -> int:
    """The parameters in safetensors files; 0 without files, or if some are packed, as quantised ones are."""
    total = 0
    for shape, dtype in (entry for path in sorted(folder.glob("*.safetensors")) for entry in _tensors(path)):
        if dtype not in ("F64", "F32", "F16", "BF16"):
            return 0
        total += math.prod(shape)
    return total


def _tensors(path: Path) -> Iterator[tuple[list[int], str]]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length)) if length <= HEADER else {}
    for name, entry in header.items():
        if name != "__metadata__":
            yield [int(number) for number in entry["shape"]], str(entry["dtype"])
