"""Does sampler-handover notice that distances between log-probabilities cancel in the log, because they have a sign?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("metric_error",)


def break_it() -> None:
    import torch

    def signed(_: Any, values: Any) -> Any:
        return values

    replace(torch, "abs", signed)


PROBE, run = sabotage("sampler-handover", break_it, rows={"correction": "token_truncate"})
