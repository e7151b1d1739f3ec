"""Does your combination of options train what the published methods define?

The row of the covering array that your configuration is: loss, clipping, batches, iterations, KL divergence, sampling,
adapter, checkpointing, saving, ranks and ZeRO as you chose them, at the suite's own values and on a tiny model. The
oracle of `interactions` judges tokens, losses, gradients, updates, checkpoints and logs.

Catches what `interactions` catches where two options meet, and also where three or more of yours do. Needs one process,
which forks the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from smoke.kit import given, rows
from smoke.probe import Bound, Context, Probe, Reading

SEEDS = 3  # runs: one alone may have nothing to clip
# What a combination does not ask, such as the start of an adapter without one, is 0.
WORST = (
    "gradient_error",
    "update_error",
    "loss_error",
    "metric_error",
    "sampling_distance",
    "eval_error",
    "start_error",
    "weights_error",
)
WRONG = ("data_wrong", "trained_wrong", "saved_wrong", "frozen_moved", "handover_wrong")

PROBE = Probe(
    matters="options that are right one by one may train another objective together, silently",
    bounds=(
        Bound("gradient_error", "as in interactions", at_most=3e-3, headline=True),
        Bound("update_error", "as in interactions", at_most=1e-3),
        Bound("loss_error", "as in interactions", at_most=2e-4),
        Bound("metric_error", "as in interactions", at_most=2e-4),
        Bound("sampling_distance", "as in interactions", at_most=1e-4),
        Bound("eval_error", "as in interactions", at_most=1e-5),
        Bound("start_error", "as in interactions", at_most=0.02),
        Bound("weights_error", "as in sampler-handover", at_most=1e-5),
        Bound("data_wrong", "as in interactions", equals=0),
        Bound("trained_wrong", "as in interactions", "completions", equals=0),
        Bound("saved_wrong", "as in interactions", "tensors", equals=0),
        Bound("frozen_moved", "as in interactions", "tensors", equals=0),
        Bound("handover_wrong", "as in sampler-handover", equals=0),
        Bound("rows_failed", "runs that ended with an error", "runs", equals=0),
        Bound("rows_run", "runs, each with another seed", "runs", equals=SEEDS),
        Bound(
            "judged", "steps that were judged. Below its bound, the numbers above prove nothing", "steps", at_least=3
        ),
        Bound("near_edge", "recorded: steps left out, as in interactions", "steps"),
        Bound("steps", "recorded: steps of all runs", "steps"),
    ),
    links=("https://github.com/huggingface/trl/issues/2995",),
    needs=("torch", "transformers", "datasets", "peft", "trl"),
    skips=(rows.TOO_OLD,),
    gpus=1,
    forks=True,
    timeout_s=300,
)


def run(context: Context) -> Iterator[Reading]:
    """Run the row with a few seeds, and report the worst of each number."""
    wanted = given.read(Path(__file__))
    row = wanted["row"]
    print(f"smoke: {row}", flush=True)
    chosen = {f"seed {context.seed + i}": row for i in range(SEEDS)}
    seeds = {name: context.seed + i for i, name in enumerate(chosen)}
    steps = {"steps": 0.0, "near_edge": 0.0}
    for reading in rows.run(context, chosen, WORST, (*WRONG, *steps), ranks=wanted["ranks"], seeds=seeds):
        if reading.name in steps:
            steps[reading.name] = reading.value
        yield reading
    yield Reading("judged", steps["steps"] - steps["near_edge"])
