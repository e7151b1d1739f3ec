"""Does qlora-reference notice a second copy of the quantised model?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("copies",)


def break_it() -> None:
    import copy

    from trl import GRPOTrainer

    def init(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
        right(trainer, *args, **kwargs)
        trainer.ref_model = copy.deepcopy(trainer.model)

    replace(GRPOTrainer, "__init__", init)


PROBE, run = sabotage("qlora-reference", break_it)
