"""Does interactions notice that the table of completions shows other rewards than were given?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def halved(right: Any, table: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if "spelling" in table:
            table = {**table, "spelling": [value / 2 for value in table["spelling"]]}
        return right(table, *args, **kwargs)

    replace(grpo_trainer.pd, "DataFrame", halved)


PROBE, run = sabotage("interactions", break_it, rows={"prompts": "text", "architecture": "llama"})
