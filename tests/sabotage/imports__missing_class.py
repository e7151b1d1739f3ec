"""Does imports notice a package that lacks what training takes from it?"""

from __future__ import annotations

from tests.sabotage._break import sabotage

CAUGHT_BY = ("imports_failed",)


def break_it() -> None:
    import deepspeed

    del deepspeed.zero


PROBE, run = sabotage("imports", break_it)
