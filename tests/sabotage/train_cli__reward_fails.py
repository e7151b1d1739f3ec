"""Does train-cli notice a command that fails?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("exit_status",)


def break_it() -> None:
    from trl import GRPOTrainer

    def fail(*_: Any) -> None:
        raise RuntimeError("the reward function cannot be called")

    replace(GRPOTrainer, "_calculate_rewards", fail)


PROBE, run = sabotage("train-cli", break_it)
