"""Does nf4-parity notice a layer that keeps other weights once it has been evaluated?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error_after_eval",)


def break_it() -> None:
    from bitsandbytes.nn import Linear4bit

    def forward(right: Any, layer: Any, x: Any) -> Any:
        output = right(layer, x)
        if not layer.training:
            layer.weight.data = layer.weight.data.flip(0)
        return output

    replace(Linear4bit, "forward", forward)


PROBE, run = sabotage("nf4-parity", break_it)
