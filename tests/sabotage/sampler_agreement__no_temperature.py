"""Does sampler-agreement notice a vLLM that samples, and reports, without the temperature?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("sampler_diff", "ratio_at_start", "sampling_z")


def break_it() -> None:
    from vllm.v1.sample.sampler import Sampler

    replace(Sampler, "apply_temperature", lambda _, __, logits, *___: logits)


PROBE, run = sabotage("sampler-agreement", break_it)
