"""Does sampler-handover notice that the correction for the sampler's log-probabilities has no effect?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "loss_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def uncorrected(right: Any, self: Any, model: Any, inputs: dict[str, Any]) -> Any:
        if (ratio := inputs.get("importance_sampling_ratio")) is not None:
            inputs = {**inputs, "importance_sampling_ratio": ratio.new_ones(ratio.shape)}
        return right(self, model, inputs)

    replace(GRPOTrainer, "_compute_loss", uncorrected)


PROBE, run = sabotage("sampler-handover", break_it, rows={"correction": "token_mask", "architecture": "qwen2"})
