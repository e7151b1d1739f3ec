"""Does weights-reach-sampler notice an output layer that is loaded once and never again?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("sampler_diff", "sampler_diff_max", "greedy_regret", "stale_tensors", "tensors_changed")


def break_it() -> None:
    from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM

    def load(right: Any, model: Any, weights: Any) -> Any:
        loaded = getattr(model, "loaded", False)
        model.loaded = True
        return right(model, [(name, weight) for name, weight in weights if not (loaded and "lm_head" in name)])

    replace(Qwen2ForCausalLM, "load_weights", load)


PROBE, run = sabotage("weights-reach-sampler", break_it)
