"""Does interactions notice that a resumed run starts with an empty optimizer?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("update_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    disable(GRPOTrainer, "_load_optimizer_and_scheduler")


PROBE, run = sabotage("interactions", break_it, rows={"saving": "resumed", "architecture": "qwen2"})
