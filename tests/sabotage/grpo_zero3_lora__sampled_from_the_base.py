"""Does grpo-zero3-lora notice samples of the base, without the adapter that is trained?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("last_generation_diff",)


def break_it() -> None:
    from peft import PeftModelForCausalLM

    def generate(right: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with model.disable_adapter():
            return right(model, *args, **kwargs)

    replace(PeftModelForCausalLM, "generate", generate)


PROBE, run = sabotage("grpo-zero3-lora", break_it)
