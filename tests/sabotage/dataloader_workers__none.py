"""Does dataloader-workers notice that no worker is used?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("workers_used",)


def break_it() -> None:
    from torch.utils.data import DataLoader

    def init(right: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        alone = {"num_workers": 0, "prefetch_factor": None, "persistent_workers": False}
        right(loader, *args, **{**kwargs, **alone})

    replace(DataLoader, "__init__", init)


PROBE, run = sabotage("dataloader-workers", break_it)
