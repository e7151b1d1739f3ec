"""Does generation-modes notice gradient checkpointing that stays on while generating?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("first_choices",)


def break_it() -> None:
    from transformers import PreTrainedModel

    disable(PreTrainedModel, "gradient_checkpointing_disable")


PROBE, run = sabotage("generation-modes", break_it)
