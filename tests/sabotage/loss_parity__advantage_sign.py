"""Does loss-parity notice that what is better than its group is trained away?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "gradient_error_temperature", "gradient_error_padding", "loss_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def turned(right: Any, *args: Any) -> Any:
        batch = right(*args)
        return {**batch, "advantages": -batch["advantages"]}

    replace(GRPOTrainer, "_generate_and_score_completions", turned)


PROBE, run = sabotage("loss-parity", break_it)
