"""Does zero3-hooks notice a helper that needs an engine, and takes none of its hooks off?"""

from __future__ import annotations

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("bare_model_errors", "hooks_left", "hooks")


def break_it() -> None:
    from trl.models import utils

    replace(utils, "remove_hooks", lambda _, model: setattr(model.optimizer, "hooks", "removed"))


PROBE, run = sabotage("zero3-hooks", break_it)
