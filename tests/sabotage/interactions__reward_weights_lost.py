"""Does interactions notice that reward_weights are accepted and have no effect?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "metric_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def equal(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.reward_weights = self.reward_weights.new_ones(self.reward_weights.shape)

    replace(GRPOTrainer, "__init__", equal)


PROBE, run = sabotage("interactions", break_it, rows={"rewards": "two weighted", "architecture": "qwen2"})
