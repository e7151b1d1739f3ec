"""Does interactions notice that the prompts come in the order of the data, and not shuffled?"""

from __future__ import annotations

from tests.sabotage._break import sabotage, set_after_init

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    set_after_init(GRPOTrainer, shuffle_dataset=False)


PROBE, run = sabotage("interactions", break_it, rows={"order": "shuffled", "architecture": "llama"})
