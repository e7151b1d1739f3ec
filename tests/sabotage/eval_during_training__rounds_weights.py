"""Does eval-during-training notice an evaluation in half precision that leaves the weights rounded?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("training_changed",)


def break_it() -> None:
    from transformers import Trainer

    def rounding(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        for parameter in trainer.model.parameters():
            parameter.data = parameter.data.bfloat16().float()
        return right(trainer, *args, **kwargs)

    replace(Trainer, "evaluation_loop", rounding)


PROBE, run = sabotage("eval-during-training", break_it)
