"""Does interactions notice that every micro-batch of a generation is its first one?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("trained_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def first(right: Any, self: Any, batch: Any) -> Any:
        inputs = right(self, batch)
        return self._buffered_inputs[0] if self.model.training else inputs

    replace(GRPOTrainer, "_prepare_inputs", first)


PROBE, run = sabotage("interactions", break_it, rows={"accumulation": "2", "architecture": "qwen2"})
