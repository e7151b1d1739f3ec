"""Does checkpoint-resume notice a run that trains its first prompts again?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("parameters_different", "prompts_different", "completions_different")


def break_it() -> None:
    from transformers import trainer

    replace(trainer, "skip_first_batches", lambda _, loader, *__: loader)


PROBE, run = sabotage("checkpoint-resume", break_it)
