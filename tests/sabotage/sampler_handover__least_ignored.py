"""Does sampler-handover notice that the least importance has no effect?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "metric_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def unlimited(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.vllm_importance_sampling_clip_min = None

    replace(GRPOTrainer, "__init__", unlimited)


PROBE, run = sabotage("sampler-handover", break_it, rows={"correction": "token_truncate", "constants": "own"})
