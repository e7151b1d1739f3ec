"""Does kl-reference notice a reference that follows the policy?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("kl_error", "reference_changed")


def break_it() -> None:
    from trl import GRPOTrainer

    def follow(right: Any, trainer: Any, *args: Any) -> Any:
        if trainer.ref_model is not None:
            trainer.ref_model.load_state_dict(trainer.model.state_dict())
        return right(trainer, *args)

    replace(GRPOTrainer, "_generate_and_score_completions", follow)


PROBE, run = sabotage("kl-reference", break_it)
