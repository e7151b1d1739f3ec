"""Does zero3-hooks notice hooks that are not put back?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("hooks_changed",)


def break_it() -> None:
    from trl.models import utils

    disable(utils, "add_hooks")


PROBE, run = sabotage("zero3-hooks", break_it)
