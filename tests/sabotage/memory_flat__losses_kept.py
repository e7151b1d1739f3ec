"""Does memory-flat notice losses that are kept with their graphs?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tensors_per_step", "memory_per_step")


def break_it() -> None:
    from trl import GRPOTrainer

    kept: list[Any] = []

    def compute(right: Any, *args: Any, **kwargs: Any) -> Any:
        kept.append(right(*args, **kwargs))
        return kept[-1]

    replace(GRPOTrainer, "compute_loss", compute)


PROBE, run = sabotage("memory-flat", break_it)
