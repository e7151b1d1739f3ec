"""Does ddp-equivalence notice that the last batch of an evaluation is not filled up, where whole groups are left?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("groups_mixed",)


def break_it() -> None:
    from accelerate.data_loader import BatchSamplerShard

    def short(right: Any, self: Any) -> Any:
        batches = list(right(self))
        if isinstance(getattr(self.batch_sampler.sampler, "data_source", None), list):  # neither training nor samples
            batches[-1] = batches[-1][:2]
        return iter(batches)

    replace(BatchSamplerShard, "__iter__", short)


PROBE, run = sabotage("ddp-equivalence", break_it)
