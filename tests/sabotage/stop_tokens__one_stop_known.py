"""Does stop-tokens notice a trainer that knows only the tokenizer's end of sequence?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tokens_past_stop",)


def break_it() -> None:
    from trl import GRPOTrainer

    def generate(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        trainer.eos_token_ids = [trainer.processing_class.eos_token_id]
        trainer.generation_config.eos_token_id = trainer.eos_token_ids
        return right(trainer, *args, **kwargs)

    replace(GRPOTrainer, "_generate_single_turn", generate)


PROBE, run = sabotage("stop-tokens", break_it)
