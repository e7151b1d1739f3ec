"""Does sampler-handover notice that completions are assigned to other prompts than they were sampled for?"""

from __future__ import annotations

from typing import Any

from smoke.kit import adapter
from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("rows_failed",)


def break_it() -> None:
    generation = adapter.engine_module().VLLMGeneration

    def turned(right: Any, self: Any, prompts: list[Any], *args: Any, **kwargs: Any) -> Any:
        return right(self, prompts[::-1], *args, **kwargs)

    replace(generation, "generate", turned)


PROBE, run = sabotage("sampler-handover", break_it, rows={"generations": "2", "architecture": "qwen2"})
