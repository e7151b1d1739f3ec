"""Does interactions notice that a new adapter begins with smaller weights than PEFT's?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("start_error",)


def break_it() -> None:
    from peft.tuners.lora.layer import LoraLayer

    def smaller(right: Any, layer: Any, name: str, *args: Any, **kwargs: Any) -> None:
        right(layer, name, *args, **kwargs)
        if name in layer.lora_A:
            layer.lora_A[name].weight.data *= 0.9

    replace(LoraLayer, "reset_lora_parameters", smaller)


PROBE, run = sabotage("interactions", break_it, rows={"adapter": "LoRA", "loss": "grpo"})
