"""Does eval-during-training notice an evaluation that is the mean of its last batch?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("eval_reward_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def log(right: Any, trainer: Any, *args: Any) -> None:
        rewards = trainer._metrics["eval"].get("reward", [])
        del rewards[:-1]
        right(trainer, *args)

    replace(GRPOTrainer, "log", log)


PROBE, run = sabotage("eval-during-training", break_it)
