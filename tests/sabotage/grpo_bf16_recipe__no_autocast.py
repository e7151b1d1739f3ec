"""Does grpo-bf16-recipe notice a run in float32 that was asked for in bfloat16?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("products_not_bfloat16",)


def break_it() -> None:
    import torch
    from accelerate import accelerator

    replace(accelerator, "get_mixed_precision_context_manager", lambda *_: torch.autocast("cpu", enabled=False))


PROBE, run = sabotage("grpo-bf16-recipe", break_it)
