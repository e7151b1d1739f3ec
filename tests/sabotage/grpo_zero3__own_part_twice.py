"""Does grpo-zero3 notice ranks that gather their own part in place of the other's?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("ranks_differ", "first_generation_diff")


def break_it() -> None:
    import deepspeed

    def gather(right: Any, whole: Any, part: Any, **kwargs: Any) -> Any:
        handle = right(whole, part, **kwargs)
        if handle is not None:
            handle.wait()
        whole.copy_(part.repeat(whole.numel() // part.numel()))
        return handle

    replace(deepspeed.comm, "all_gather_into_tensor", gather)


PROBE, run = sabotage("grpo-zero3", break_it)
