"""Does kl-reference notice an adapter that stays on for the reference?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("kl_error",)


def break_it() -> None:
    import contextlib

    from trl.trainer import grpo_trainer

    replace(grpo_trainer, "use_adapter", lambda *_, **__: contextlib.nullcontext())


PROBE, run = sabotage("kl-reference", break_it)
