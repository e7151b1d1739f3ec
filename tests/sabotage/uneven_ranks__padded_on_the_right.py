"""Does uneven-ranks notice prompts whose padding stands between them and their completions?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("wrong_completions",)


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def pad(right: Any, *args: Any, **kwargs: Any) -> Any:
        return right(*args, **{**kwargs, "padding_side": "right"})

    replace(grpo_trainer, "pad", pad)


PROBE, run = sabotage("uneven-ranks", break_it)
