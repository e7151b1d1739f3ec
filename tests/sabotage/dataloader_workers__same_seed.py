"""Does dataloader-workers notice workers that draw the same random numbers?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("draws_repeated",)


def break_it() -> None:
    from transformers import set_seed, trainer

    replace(trainer, "seed_worker", lambda *_, **__: set_seed(0))


PROBE, run = sabotage("dataloader-workers", break_it)
