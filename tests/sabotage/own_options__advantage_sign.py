"""Does own-options notice that what is better than its group is trained away?"""

from __future__ import annotations

from typing import Any

from smoke.kit import levels
from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "loss_error")
ROW = {factor: values[0] for factor, values in levels.FACTORS.items()} | {"loss": "dr_grpo", "adapter": "LoRA"}


def break_it() -> None:
    from trl import GRPOTrainer

    def turned(right: Any, *args: Any) -> Any:
        batch = right(*args)
        return {**batch, "advantages": -batch["advantages"]}

    replace(GRPOTrainer, "_generate_and_score_completions", turned)


PROBE, run = sabotage("own-options", break_it, own={"row": ROW, "model": {}, "ranks": 1})
