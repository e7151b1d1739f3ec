"""Does interactions notice that less of a gradient than is due passes through 4-bit layers?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "update_error")


def break_it() -> None:
    from bitsandbytes.autograd._functions import MatMul4Bit

    def weaker(right: Any, *args: Any) -> Any:
        inward, *others = right(*args)
        return (0.98 * inward, *others)

    replace(MatMul4Bit, "backward", weaker)


PROBE, run = sabotage("interactions", break_it, rows={"adapter": "LoRA on 4-bit", "optimizer": "sgd"})
