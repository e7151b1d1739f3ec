"""Does dataloader-workers notice workers that do not end?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("workers_left",)
# torch lists the workers by their iterator's address: another iterator at the address of one whose workers run is an
# error of its own, so no iterator is freed.
KEPT: list[Any] = []


def break_it() -> None:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    replace(_MultiProcessingDataLoaderIter, "_shutdown_workers", lambda _, iterator: KEPT.append(iterator))


PROBE, run = sabotage("dataloader-workers", break_it)
