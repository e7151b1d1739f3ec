"""Does grpo-bf16-recipe notice weights that stay in bfloat16, where updates round to nothing?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("updates_lost", "weights_not_float32", "moments_not_float32")


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def create(right: Any, *args: Any, **kwargs: Any) -> Any:
        return right(*args, **kwargs).bfloat16()

    replace(grpo_trainer, "create_model_from_path", create)


PROBE, run = sabotage("grpo-bf16-recipe", break_it)
