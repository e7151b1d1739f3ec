"""Does sampler-handover notice that the engine reads its first weights again after it was given the trained ones?

TRL 0.28 to 1.9 did so whenever the engine had slept.
"""

from __future__ import annotations

from typing import Any

from smoke.kit import adapter
from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("weights_error",)


def break_it() -> None:
    generation = adapter.engine_module().VLLMGeneration

    def reloaded(right: Any, self: Any) -> None:
        right(self)
        self.llm.collective_rpc("reload_weights")

    replace(generation, "sync_weights", reloaded)


PROBE, run = sabotage("sampler-handover", break_it, rows={"sleep": "on", "adapter": "none", "architecture": "llama"})
