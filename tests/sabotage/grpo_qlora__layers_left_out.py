"""Does grpo-qlora notice layers that are left in full precision?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("layers_4bit",)


def break_it() -> None:
    from transformers.integrations import bitsandbytes

    def some(right: Any, model: Any, modules_to_not_convert: Any = None, **kwargs: Any) -> Any:
        return right(model, modules_to_not_convert=[*(modules_to_not_convert or []), "down_proj"], **kwargs)

    replace(bitsandbytes, "replace_with_bnb_linear", some)


PROBE, run = sabotage("grpo-qlora", break_it)
