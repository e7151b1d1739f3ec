"""Does chat-template notice prompts that begin with the special token twice?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("conversations_differ", "texts_differ", "tokens_cut")


def break_it() -> None:
    from trl import GRPOTrainer

    def tokenize(right: Any, trainer: Any, *args: Any) -> Any:
        prompts, *rest = right(trainer, *args)
        return [[trainer.processing_class.bos_token_id, *prompt] for prompt in prompts], *rest

    replace(GRPOTrainer, "_tokenize_prompts", tokenize)


PROBE, run = sabotage("chat-template", break_it)
