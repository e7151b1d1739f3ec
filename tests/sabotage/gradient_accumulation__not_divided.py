"""Does gradient-accumulation notice gradients that are larger by the number of micro-batches?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "update_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def compute(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        trainer.current_gradient_accumulation_steps = 1
        return right(trainer, *args, **kwargs)

    replace(GRPOTrainer, "compute_loss", compute)


PROBE, run = sabotage("gradient-accumulation", break_it)
