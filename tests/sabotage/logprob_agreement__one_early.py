"""Does logprob-agreement notice tokens that are scored one position too early?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("max_abs_diff",)


def break_it() -> None:
    from trl import GRPOTrainer

    def early(right: Any, trainer: Any, model: Any, ids: Any, mask: Any, keep: int, **kwargs: Any) -> Any:
        return tuple(
            None if part is None else part[:, :-1] for part in right(trainer, model, ids, mask, keep + 1, **kwargs)
        )

    replace(GRPOTrainer, "_get_per_token_logps_and_entropies", early)


PROBE, run = sabotage("logprob-agreement", break_it)
