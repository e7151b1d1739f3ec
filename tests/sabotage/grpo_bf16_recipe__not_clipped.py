"""Does grpo-bf16-recipe notice gradients that are not clipped?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("norm_used", "clip_error", "weight_error")


def break_it() -> None:
    from accelerate import Accelerator

    def measure(right: Any, accelerator: Any, parameters: Any, *_: Any) -> Any:
        return right(accelerator, parameters, float("inf"))

    replace(Accelerator, "clip_grad_norm_", measure)


PROBE, run = sabotage("grpo-bf16-recipe", break_it)
