"""Does reward-rises notice a learning rate that does not reach the optimizer?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("reward_end", "first_update_error")


def break_it() -> None:
    from transformers import Trainer

    def create(right: Any, trainer: Any, *args: Any) -> Any:
        trainer.args.learning_rate = type(trainer.args).learning_rate
        return right(trainer, *args)

    replace(Trainer, "create_optimizer", create)


PROBE, run = sabotage("reward-rises", break_it)
