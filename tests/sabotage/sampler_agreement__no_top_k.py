"""Does sampler-agreement notice a vLLM that samples from the whole vocabulary?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tokens_outside",)


def break_it() -> None:
    from vllm.v1.sample.ops import topk_topp_sampler

    replace(topk_topp_sampler, "apply_top_k_top_p", lambda right, logits, _, p: right(logits, None, p))


PROBE, run = sabotage("sampler-agreement", break_it)
