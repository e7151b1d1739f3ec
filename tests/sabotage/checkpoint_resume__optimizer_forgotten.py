"""Does checkpoint-resume notice an optimizer that starts at zero again?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("parameters_different", "moments_different", "logs_different")


def break_it() -> None:
    from accelerate.optimizer import AcceleratedOptimizer

    disable(AcceleratedOptimizer, "load_state_dict")


PROBE, run = sabotage("checkpoint-resume", break_it)
