"""Does ddp-equivalence notice that an evaluation counts the samples that only fill the last batch?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("evaluated_wrong",)


def break_it() -> None:
    from accelerate import Accelerator

    replace(Accelerator, "gather_for_metrics", lambda _, self, samples, **__: self.gather(samples))


PROBE, run = sabotage("ddp-equivalence", break_it)
