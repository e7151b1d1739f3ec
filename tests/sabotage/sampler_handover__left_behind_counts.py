"""Does sampler-handover notice that completions count which the policy has left behind?"""

from __future__ import annotations

from tests.sabotage._break import sabotage, set_after_init

CAUGHT_BY = ("gradient_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    set_after_init(GRPOTrainer, off_policy_mask_threshold=None)


PROBE, run = sabotage("sampler-handover", break_it, rows={"off-policy": "masked", "architecture": "qwen2"})
