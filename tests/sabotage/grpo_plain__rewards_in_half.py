"""Does grpo-plain notice rewards that are rounded before they are used?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("reward_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def rounded(right: Any, *args: Any) -> Any:
        return right(*args).bfloat16().float()

    replace(GRPOTrainer, "_calculate_rewards", rounded)


PROBE, run = sabotage("grpo-plain", break_it)
