"""The tiny twin of a model keeps what makes its architecture, at small sizes."""

from __future__ import annotations

from typing import Any

import pytest

from smoke.kit import twin

SIZES = {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24, "intermediate_size": 8192}


def small(**large: Any) -> dict[str, Any]:
    return twin.configuration({**SIZES, "model_type": "llama", **large})


def test_heads_share_keys_as_they_did() -> None:
    grouped = small(num_key_value_heads=8)
    assert (grouped["num_attention_heads"], grouped["num_key_value_heads"]) == (8, 2)
    assert grouped["hidden_size"] == 8 * twin.HEAD
    alone = small(num_key_value_heads=32, head_dim=64)
    assert alone["num_attention_heads"] == alone["num_key_value_heads"] == 2
    assert small(num_key_value_heads=1)["num_key_value_heads"] == 1
    assert small(num_key_value_heads=1)["num_attention_heads"] == twin.MOST_HEADS
    free = small(num_key_value_heads=8, head_dim=128)
    assert (free["head_dim"], free["hidden_size"]) == (twin.HEAD, 4 * twin.HEAD)


def test_every_kind_of_layer_is_there() -> None:
    kinds = (["sliding_attention"] * 5 + ["full_attention"]) * 4
    found = small(layer_types=kinds, sliding_window=512)
    assert found["num_hidden_layers"] == 6
    assert found["layer_types"] == kinds[:6]
    assert found["sliding_window"] == twin.WINDOW
    assert small(full_attention_interval=4)["num_hidden_layers"] == 4
    assert small(layer_types=["full_attention"] * 24, no_rope_layer_interval=4)["num_hidden_layers"] == 4
    assert small(sliding_window_pattern="LLLG")["num_hidden_layers"] == 4
    assert small()["num_hidden_layers"] == twin.LAYERS
    assert small(layer_types=["a"] * 20 + ["b"])["num_hidden_layers"] == twin.MOST_LAYERS


def test_experts_and_positions_stay_of_their_kind() -> None:
    found = small(
        num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, max_position_embeddings=131072,
        rope_scaling={"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096},
    )  # fmt: skip
    assert (found["num_experts"], found["num_experts_per_tok"], found["moe_intermediate_size"]) == (4, 2, 32)
    assert found["rope_scaling"] == {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 16}
    long = small(rope_scaling={"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48})
    assert len(long["rope_scaling"]["long_factor"]) == twin.HEAD // 2
    partial = small(rope_scaling={"type": "longrope", "long_factor": [2.0] * 48}, partial_rotary_factor=0.75)
    assert len(partial["rope_scaling"]["long_factor"]) == 6
    latent = small(head_dim=64, qk_rope_head_dim=64, kv_lora_rank=512)
    assert latent["head_dim"] == latent["qk_rope_head_dim"] == 8
    nested = small(rope_parameters={"full_attention": {"rope_type": "default"}, "rope_theta": 1e4})
    assert nested["rope_parameters"]["full_attention"] == {"rope_type": "default"}


def test_what_belongs_to_the_large_model_alone_is_dropped() -> None:
    found = small(quantization_config={}, torch_dtype="bfloat16", attention_dropout=0.1, eos_token_id=151645)
    assert not {"quantization_config", "torch_dtype", "model_type"} & found.keys()
    assert (found["attention_dropout"], found["eos_token_id"]) == (0.0, 1)


@pytest.mark.parametrize(
    ("large", "words"),
    [
        ({"text_config": {}}, "more than text: text_config"),
        ({"hidden_size": None}, "does not say .*: hidden_size"),
        ({"num_attention_heads": 0}, "does not say .*: num_attention_heads"),
    ],
)
def test_without_a_twin_there_is_a_reason(large: dict[str, Any], words: str) -> None:
    with pytest.raises(twin.NoTwinError, match=words):
        small(**large)
