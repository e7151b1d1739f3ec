"""Does generation-modes notice gradient checkpointing that generating switches off for good?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import disable, replace, sabotage

CAUGHT_BY = ("checkpointing",)


def break_it() -> None:
    from transformers import PreTrainedModel

    def switch_off(right: Any, model: Any) -> None:
        right(model)
        disable(model, "gradient_checkpointing_enable")

    replace(PreTrainedModel, "gradient_checkpointing_disable", switch_off)


PROBE, run = sabotage("generation-modes", break_it)
