"""Does logprob-padding notice padding that is attended to?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("max_abs_diff",)


def break_it() -> None:
    from trl import GRPOTrainer

    def unmasked(right: Any, trainer: Any, model: Any, ids: Any, mask: Any, keep: int, **kwargs: Any) -> Any:
        return right(trainer, model, ids, mask.new_ones(mask.shape), keep, **kwargs)

    replace(GRPOTrainer, "_get_per_token_logps_and_entropies", unmasked)


PROBE, run = sabotage("logprob-padding", break_it)
