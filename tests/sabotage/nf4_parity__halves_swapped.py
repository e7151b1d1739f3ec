"""Does nf4-parity notice the two halves of a byte in the wrong order?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("code_error",)


def break_it() -> None:
    from bitsandbytes import functional

    def swapped(right: Any, *args: Any, **kwargs: Any) -> Any:
        packed, state = right(*args, **kwargs)
        return packed << 4 | packed >> 4, state

    replace(functional, "quantize_4bit", swapped)


PROBE, run = sabotage("nf4-parity", break_it)
