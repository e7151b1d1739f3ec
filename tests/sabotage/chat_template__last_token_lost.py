"""Does chat-template notice completions that lose their last token before training?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("completions_differ",)


def break_it() -> None:
    from trl import GRPOTrainer

    def generate(right: Any, *args: Any, **kwargs: Any) -> Any:
        completions, logprobs = right(*args, **kwargs)
        return [tokens[:-1] or tokens for tokens in completions], logprobs

    replace(GRPOTrainer, "_generate_single_turn", generate)


PROBE, run = sabotage("chat-template", break_it)
