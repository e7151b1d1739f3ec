"""Does qlora-ranks notice ranks that train adapters of their own?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("ranks_differ", "gradient_error")


def break_it() -> None:
    from torch.nn.parallel import DistributedDataParallel

    def forward(right: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        with model.no_sync():
            return right(model, *args, **kwargs)

    replace(DistributedDataParallel, "forward", forward)


PROBE, run = sabotage("qlora-ranks", break_it)
