"""Does kl-reference notice a reference that is not the model that training began with?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("kl_error", "kl_first", "reference_changed")


def break_it() -> None:
    from trl import GRPOTrainer

    def init(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        right(trainer, *args, **kwargs)
        if trainer.ref_model is not None:
            trainer.ref_model.lm_head.weight.data *= 1.1

    replace(GRPOTrainer, "__init__", init)


PROBE, run = sabotage("kl-reference", break_it)
