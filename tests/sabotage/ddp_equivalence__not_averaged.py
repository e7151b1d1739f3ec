"""Does ddp-equivalence notice ranks that never tell each other their gradients?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "update_error", "ranks_differ")


def break_it() -> None:
    from torch.nn.parallel import DistributedDataParallel

    def forward(right: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with model.no_sync():
            return right(model, *args, **kwargs)

    replace(DistributedDataParallel, "forward", forward)


PROBE, run = sabotage("ddp-equivalence", break_it)
