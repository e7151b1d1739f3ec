"""Does zero3-equivalence notice ranks that compute with their own part in place of the other's?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("update_error",)


def break_it() -> None:
    from deepspeed.runtime.zero import partition_parameters

    def gather(right: Any, part: Any, whole: Any, group: Any = None) -> Any:
        handle = right(part, whole, group)
        handle.wait()
        whole.copy_(part.repeat(whole.numel() // part.numel()))
        return handle

    replace(partition_parameters, "_dist_allgather_fn", gather)


PROBE, run = sabotage("zero3-equivalence", break_it)
