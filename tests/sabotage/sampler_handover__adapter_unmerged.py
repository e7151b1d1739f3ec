"""Does sampler-handover notice that the sampler is given the model without its adapter?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("weights_error",)


def break_it() -> None:
    from peft.tuners.tuners_utils import BaseTuner

    disable(BaseTuner, "merge_adapter")
    disable(BaseTuner, "unmerge_adapter")


PROBE, run = sabotage("sampler-handover", break_it, rows={"adapter": "LoRA", "architecture": "qwen2"})
