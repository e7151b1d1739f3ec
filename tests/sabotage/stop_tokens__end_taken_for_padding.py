"""Does stop-tokens notice an end of sequence that is taken for padding?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("ends_lost",)


def break_it() -> None:
    from trl import GRPOTrainer

    def generate(right: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        completions, logprobs = right(trainer, *args, **kwargs)
        padding = trainer.processing_class.pad_token_id
        return [[token for token in tokens if token != padding] or tokens for tokens in completions], logprobs

    replace(GRPOTrainer, "_generate_single_turn", generate)


PROBE, run = sabotage("stop-tokens", break_it)
