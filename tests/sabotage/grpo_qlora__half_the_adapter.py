"""Does grpo-qlora notice tensors of the adapter that the optimizer does not know?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("parameters_moved",)


def break_it() -> None:
    from transformers import Trainer

    def create(right: Any, *args: Any) -> Any:
        optimizer = right(*args)
        del optimizer.param_groups[0]["params"][::2]
        return optimizer

    replace(Trainer, "create_optimizer", create)


PROBE, run = sabotage("grpo-qlora", break_it)
