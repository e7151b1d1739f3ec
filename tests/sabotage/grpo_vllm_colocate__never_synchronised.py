"""Does grpo-vllm-colocate notice a sampler that keeps the weights that it was started with?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("stale_tensors", "training_diff")


def break_it() -> None:
    from trl.generation.vllm_generation import VLLMGeneration

    disable(VLLMGeneration, "sync_weights")


PROBE, run = sabotage("grpo-vllm-colocate", break_it)
