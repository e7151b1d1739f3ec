"""Does grpo-zero3 notice parameters that every rank keeps whole?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("whole_parameters",)


def break_it() -> None:
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    replace(DeepSpeedZeRoOffload, "mark_persistent_parameters", lambda right, self, _, limit: right(self, limit, limit))


PROBE, run = sabotage("grpo-zero3", break_it)
