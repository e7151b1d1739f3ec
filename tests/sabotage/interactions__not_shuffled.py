"""Does interactions notice that the prompts come in the order of the data, and not shuffled?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def in_order(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.shuffle_dataset = False

    replace(GRPOTrainer, "__init__", in_order)


PROBE, run = sabotage("interactions", break_it, rows={"order": "shuffled", "architecture": "llama"})
