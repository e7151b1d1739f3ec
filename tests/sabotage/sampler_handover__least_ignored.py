"""Does sampler-handover notice that the least importance has no effect?"""

from __future__ import annotations

from tests.sabotage._break import sabotage, set_after_init

CAUGHT_BY = ("gradient_error", "metric_error")


def break_it() -> None:
    from trl import GRPOTrainer

    set_after_init(GRPOTrainer, vllm_importance_sampling_clip_min=None)


PROBE, run = sabotage("sampler-handover", break_it, rows={"correction": "token_truncate", "constants": "own"})
