"""Does zero2-equivalence notice that the gradients of one rank are lost?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("update_error",)


def break_it() -> None:
    import os

    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    def average(right: Any, optimizer: Any, tensor: Any, *args: Any) -> None:
        if os.environ["RANK"] == "1":
            tensor.zero_()
        right(optimizer, tensor, *args)

    replace(DeepSpeedZeroOptimizer, "average_tensor", average)


PROBE, run = sabotage("zero2-equivalence", break_it)
