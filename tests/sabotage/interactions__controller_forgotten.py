"""Does interactions notice that a resumed run starts with the first coefficient of the entropy bonus again?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("metric_error",)


def break_it() -> None:
    from transformers import Trainer
    from trl import GRPOTrainer

    load = Trainer._load_optimizer_and_scheduler
    replace(GRPOTrainer, "_load_optimizer_and_scheduler", lambda _, self, checkpoint: load(self, checkpoint))


PROBE, run = sabotage("interactions", break_it, rows={"entropy": "adaptive bonus", "saving": "resumed"})
