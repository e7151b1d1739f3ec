"""Does own-architecture notice that a twin of Gemma 2 attends to padding?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("score_error",)
GEMMA = {
    "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "query_pre_attn_scalar": 256,
    "sliding_window": 4096, "vocab_size": 256000, "max_position_embeddings": 8192,
}  # fmt: skip


def break_it() -> None:
    from trl import GRPOTrainer

    def unmasked(right: Any, trainer: Any, model: Any, ids: Any, mask: Any, keep: int, **kwargs: Any) -> Any:
        return right(trainer, model, ids, mask.new_ones(mask.shape), keep, **kwargs)

    replace(GRPOTrainer, "_get_per_token_logps_and_entropies", unmasked)


PROBE, run = sabotage("own-architecture", break_it, own={"row": {}, "model": GEMMA, "ranks": 1})
