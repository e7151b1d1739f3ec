"""Does interactions-ranks notice that ZeRO-2 accepts gradient_clipping and clips nothing?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("update_error",)


def break_it() -> None:
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    disable(DeepSpeedZeroOptimizer, "unscale_and_clip_grads")


PROBE, run = sabotage("interactions-ranks", break_it, rows={"backend": "zero2", "gradient norm": "clipped"})
