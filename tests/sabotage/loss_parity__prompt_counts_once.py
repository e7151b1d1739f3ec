"""Does loss-parity notice that a prompt that comes again in a batch is not trained on again?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "loss_error")


def break_it() -> None:
    from trl import GRPOTrainer

    def once(right: Any, trainer: Any, inputs: Any) -> Any:
        batch = right(trainer, inputs)
        groups = [row["prompt"] for row in inputs][:: trainer.num_generations]
        again = [prompt in groups[:i] for i, prompt in enumerate(groups) for _ in range(trainer.num_generations)]
        weight = batch["advantages"].new_tensor([not seen for seen in again])
        return {**batch, "advantages": batch["advantages"] * weight}

    replace(GRPOTrainer, "_generate_and_score_completions", once)


PROBE, run = sabotage("loss-parity", break_it)
