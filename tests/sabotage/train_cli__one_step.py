"""Does train-cli notice a run that ends too early, with nothing trained?"""

from __future__ import annotations

from tests.sabotage._break import disable, replace, sabotage

CAUGHT_BY = ("steps_logged", "tensors_untrained")


def break_it() -> None:
    from accelerate.optimizer import AcceleratedOptimizer
    from trl import GRPOTrainer

    disable(AcceleratedOptimizer, "step")
    replace(
        GRPOTrainer, "log", lambda right, trainer, logs, *args: right(trainer, {**logs, "loss": float("nan")}, *args)
    )


PROBE, run = sabotage("train-cli", break_it)
