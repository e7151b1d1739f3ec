"""Does grpo-plain notice completions that are all the same, of which nothing is learned?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("parameters_moved", "steps_finite", "reward_spread")


def break_it() -> None:
    import torch

    replace(torch, "multinomial", lambda _, probabilities, *__, **___: probabilities.argmax(dim=-1, keepdim=True))


PROBE, run = sabotage("grpo-plain", break_it)
