"""Does dataloader-workers notice workers that do not end?"""

from __future__ import annotations

from tests.sabotage._break import disable, sabotage

CAUGHT_BY = ("workers_left",)


def break_it() -> None:
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    disable(_MultiProcessingDataLoaderIter, "_shutdown_workers")


PROBE, run = sabotage("dataloader-workers", break_it)
