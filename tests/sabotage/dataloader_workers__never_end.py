"""Does dataloader-workers notice workers that do not end?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("workers_left",)
# torch keys the workers by their iterator's address. A freed address could be reused, which is another error.
KEPT: list[Any] = []


def break_it() -> None:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    replace(_MultiProcessingDataLoaderIter, "_shutdown_workers", lambda _, iterator: KEPT.append(iterator))


PROBE, run = sabotage("dataloader-workers", break_it)
