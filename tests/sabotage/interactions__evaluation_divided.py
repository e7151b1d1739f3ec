"""Does interactions notice that the loss of an evaluation is divided by the micro-batches of a training step?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("metric_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def divided(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = right(self, *args, **kwargs)
        return loss if self.model.training else loss / self.args.gradient_accumulation_steps

    replace(GRPOTrainer, "_compute_loss", divided)


PROBE, run = sabotage("interactions", break_it, rows={"evaluation": "at start and between", "accumulation": "4"})
