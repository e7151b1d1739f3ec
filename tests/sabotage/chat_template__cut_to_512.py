"""Does chat-template notice a long prompt that loses its beginning?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tokens_cut",)


def break_it() -> None:
    from trl import GRPOTrainer

    def tokenize(right: Any, *args: Any) -> Any:
        prompts, *rest = right(*args)
        return [prompt[-512:] for prompt in prompts], *rest

    replace(GRPOTrainer, "_tokenize_prompts", tokenize)


PROBE, run = sabotage("chat-template", break_it)
