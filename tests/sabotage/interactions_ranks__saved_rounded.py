"""Does interactions-ranks notice that ZeRO-3 rounds the weights of a checkpoint to bfloat16?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("saved_wrong",)


def break_it() -> None:
    from deepspeed import DeepSpeedEngine

    def rounded(right: Any, *args: Any, **kwargs: Any) -> Any:
        weights = right(*args, **kwargs)
        return weights and {name: weight.bfloat16().float() for name, weight in weights.items()}

    replace(DeepSpeedEngine, "_zero3_consolidated_16bit_state_dict", rounded)


PROBE, run = sabotage("interactions-ranks", break_it, rows={"backend": "zero3", "saving": "every step"})
