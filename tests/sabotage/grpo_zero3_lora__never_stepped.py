"""Does grpo-zero3-lora notice steps that change nothing?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("adapter_moved",)


def break_it() -> None:
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3

    disable(DeepSpeedZeroOptimizer_Stage3, "step")


PROBE, run = sabotage("grpo-zero3-lora", break_it)
