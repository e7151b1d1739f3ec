"""Does sampler-handover notice that completions count which the policy has left behind?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def counted(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        self.off_policy_mask_threshold = None

    replace(GRPOTrainer, "__init__", counted)


PROBE, run = sabotage("sampler-handover", break_it, rows={"off-policy": "masked", "architecture": "qwen2"})
