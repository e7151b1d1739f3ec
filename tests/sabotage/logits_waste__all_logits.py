"""Does logits-waste notice a trainer that has all logits computed, and cuts off most of them itself?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("logits_per_prompt_token",)


def break_it() -> None:
    from trl import GRPOTrainer

    def score(_: Any, __: Any, model: Any, ids: Any, mask: Any, keep: int, **___: Any) -> Any:
        logits = model(input_ids=ids, attention_mask=mask).logits[:, -keep - 1 : -1]
        return logits.log_softmax(-1).gather(2, ids[:, -keep:, None])[..., 0], None, None

    replace(GRPOTrainer, "_get_per_token_logps_and_entropies", score)


PROBE, run = sabotage("logits-waste", break_it)
