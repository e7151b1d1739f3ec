"""Does sampler-agreement notice a trainer that scores at temperature 1 what was sampled at another?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("trainer_diff", "ratio_error")


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def add_head(right: Any, *args: Any, **kwargs: Any) -> None:
        right(*args, **{**kwargs, "temperature": 1.0})

    replace(grpo_trainer, "add_fused_lm_head", add_head)


PROBE, run = sabotage("sampler-agreement", break_it)
