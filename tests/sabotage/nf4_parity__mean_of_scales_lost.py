"""Does nf4-parity notice quantised scales whose mean is not added?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("scale_error", "decoded_error")


def break_it() -> None:
    from bitsandbytes import functional

    def quantize(right: Any, *args: Any, **kwargs: Any) -> Any:
        packed, state = right(*args, **kwargs)
        if state.nested:
            state.offset = 0 * state.offset
        return packed, state

    replace(functional, "quantize_4bit", quantize)


PROBE, run = sabotage("nf4-parity", break_it)
