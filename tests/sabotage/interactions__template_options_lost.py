"""Does interactions notice that the options of the chat template have no effect?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def without(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.chat_template_kwargs = {}

    replace(GRPOTrainer, "__init__", without)


PROBE, run = sabotage("interactions", break_it, rows={"prompts": "chat with options", "architecture": "llama"})
