"""Does interactions notice that the options of the chat template have no effect?"""

from __future__ import annotations

from tests.sabotage._break import sabotage, set_after_init

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    set_after_init(GRPOTrainer, chat_template_kwargs={})


PROBE, run = sabotage("interactions", break_it, rows={"prompts": "chat with options", "architecture": "llama"})
