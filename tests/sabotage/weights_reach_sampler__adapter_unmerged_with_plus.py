"""Does weights-reach-sampler notice an adapter that is added once more where it should be taken away?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("adapter_diff", "stale_tensors", "base_drift", "base_drift_bfloat16")


def break_it() -> None:
    from peft.tuners.lora import Linear

    def unmerge(right: Any, layer: Any) -> None:
        right(layer)
        layer.get_base_layer().weight.data += 2 * layer.get_delta_weight("default")

    replace(Linear, "unmerge", unmerge)


PROBE, run = sabotage("weights-reach-sampler", break_it)
