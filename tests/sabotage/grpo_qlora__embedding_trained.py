"""Does grpo-qlora notice a part of the base model that is trained, too?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("frozen_changed", "gradients_outside")


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def wrap(right: Any, *args: Any, **kwargs: Any) -> Any:
        policy = right(*args, **kwargs)
        policy.get_output_embeddings().requires_grad_(True)
        return policy

    replace(grpo_trainer, "get_peft_model", wrap)


PROBE, run = sabotage("grpo-qlora", break_it)
