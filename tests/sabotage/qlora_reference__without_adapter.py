"""Does qlora-reference notice a reference that lacks the adapter that was there at the start?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("kl_at_start",)


def break_it() -> None:
    from trl.trainer import grpo_trainer

    replace(grpo_trainer, "use_adapter", lambda right, model, **_: right(model, None))


PROBE, run = sabotage("qlora-reference", break_it)
