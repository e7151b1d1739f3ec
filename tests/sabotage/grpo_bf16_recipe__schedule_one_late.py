"""Does grpo-bf16-recipe notice a learning rate that is one step late?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("rate_error", "weight_error")


def break_it() -> None:
    from transformers import Trainer

    def create(right: Any, *args: Any, **kwargs: Any) -> Any:
        schedule = right(*args, **kwargs)
        schedule.lr_lambdas = [lambda step, rate=rate: rate(max(0, step - 1)) for rate in schedule.lr_lambdas]
        return schedule

    replace(Trainer, "create_scheduler", create)


PROBE, run = sabotage("grpo-bf16-recipe", break_it)
