"""Does dataloader-workers notice workers that hand over the rows of a batch in another order?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("rows_differ", "prompts_wrong")


def break_it() -> None:
    from torch.utils.data import get_worker_info
    from torch.utils.data._utils.fetch import _MapDatasetFetcher

    def fetch(right: Any, fetcher: Any, rows: Any) -> Any:
        return right(fetcher, [*rows[::2], *rows[1::2]] if get_worker_info() else rows)

    replace(_MapDatasetFetcher, "fetch", fetch)


PROBE, run = sabotage("dataloader-workers", break_it)
