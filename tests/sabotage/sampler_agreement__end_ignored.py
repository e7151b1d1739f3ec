"""Does sampler-agreement notice a vLLM that goes on after the end of a completion?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tokens_after_end",)


def break_it() -> None:
    from trl.generation import vllm_generation

    replace(vllm_generation, "SamplingParams", lambda right, **options: right(**options, ignore_eos=True))


PROBE, run = sabotage("sampler-agreement", break_it)
