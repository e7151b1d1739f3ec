"""Does nf4-parity notice weights in bfloat16 that are cut off where they should be rounded?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("rounded_error",)


def break_it() -> None:
    import torch
    from bitsandbytes import functional

    def cut_off(right: Any, packed: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        dtype, state.dtype = state.dtype, torch.float32
        exact = right(packed, state, *args, **kwargs)
        state.dtype = dtype
        return (exact.view(torch.int32) & -0x10000).view(torch.float32).to(dtype) if dtype == torch.bfloat16 else exact

    replace(functional, "dequantize_4bit", cut_off)


PROBE, run = sabotage("nf4-parity", break_it)
