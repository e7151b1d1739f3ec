"""Does interactions notice that the losses of two data sets are logged under one name?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("eval_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def unnamed(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return right(self, *args, **{**kwargs, "metric_key_prefix": "eval"})

    replace(GRPOTrainer, "evaluation_loop", unnamed)


PROBE, run = sabotage(
    "interactions", break_it, rows={"evaluation": "at start and between", "embedding": "tied", "prompts": "chat"}
)
