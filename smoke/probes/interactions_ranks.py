"""Where options of GRPO meet on two ranks, plain or under ZeRO-2 and ZeRO-3, is all still as the methods define it?

Catches what shows only when several processes divide a run, and DeepSpeed takes clipping, accumulation and saving over:
clipping that is accepted and has no effect, or that takes the norm of one rank's part; checkpoints that lack a part or
are rounded; optimizer state that is lost when a run is resumed; advantages or token counts of one rank alone.

Each row of a covering array (kit/array.py) is a short run of real GRPO on two ranks, and every pair of levels of two
factors is in some row. The oracle of `interactions` judges what all ranks together did. Rows with ZeRO are left out
without DeepSpeed, as is a row that asks for an option that this TRL does not have. Needs one process, which forks the
ranks; on GPUs, two of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.kit import array, levels, rows
from smoke.probe import Bound, Context, Probe, Reading

RANKS = 2
WORST = ("update_error", "gradient_error", "loss_error", "metric_error", "eval_error")
WRONG = ("data_wrong", "trained_wrong", "saved_wrong", "frozen_moved", "ranks_differ")
SHOWN = ("steps", "limited", "left_behind", "with_bonus", "near_edge", "metrics")

PROBE = Probe(
    matters="what was right on one GPU trains another objective on two, or under ZeRO, and no error says so",
    bounds=(
        Bound(
            "update_error",
            "the relative error of what a step changed in the worst tensor of any row, beyond its rounding, against "
            "clipping, schedule and optimizer taken again in float64: 3.3e-6 to 7.9e-6 over 12 seeds; 0.1 and more "
            "without clipping",
            at_most=1e-3,
            headline=True,
        ),
        Bound(
            "gradient_error",
            "the same for gradients, after clipping, where DeepSpeed does not keep them to itself: 2.5e-6 to 8.0e-6 "
            "over 12 seeds",
            at_most=1e-3,
        ),
        Bound(
            "loss_error", "as in interactions, of the mean over the ranks: 1.7e-7 to 3.7e-7 over 12 seeds", at_most=2e-4
        ),
        Bound("metric_error", "as in interactions: 5.8e-7 to 3.1e-6 over 12 seeds", at_most=2e-4),
        Bound("eval_error", "as in interactions: 2.0e-8 over 12 seeds", at_most=1e-5),
        Bound("data_wrong", "as in interactions, on every rank: 0 over 12 seeds", equals=0),
        Bound("trained_wrong", "as in interactions, by all ranks together: 0 over 12 seeds", "completions", equals=0),
        Bound(
            "saved_wrong",
            "tensors of a checkpoint that are not the whole weights: 0 over 12 seeds",
            "tensors",
            equals=0,
        ),
        Bound("frozen_moved", "as in interactions: 0 over 12 seeds", "tensors", equals=0),
        Bound("ranks_differ", "after training both ranks have the same bits: 0 over 12 seeds", "tensors", equals=0),
        Bound("rows_failed", "rows that ended with an error: 0 over 12 seeds", "rows", equals=0),
        Bound(
            "limited",
            "steps whose gradient was longer than allowed: 12 to 23 over 12 seeds. Below its bound, clipping has "
            "hardly been tested; none where no row could be run",
            "steps",
            at_least=3,
        ),
        Bound("near_edge", "steps left out, as in interactions: 0 to 1 over 12 seeds", "steps", at_most=8),
        Bound(
            "left_behind",
            "as in interactions: 39 to 72 over 12 seeds",
            "completions",
            at_least=8,
        ),
        Bound("with_bonus", "recorded: steps in which the adaptive bonus for entropy had an effect", "steps"),
        Bound("rows_run", "recorded: rows of the covering array that this stack has the options for", "rows"),
        Bound("steps", "recorded: steps of all rows", "steps"),
        Bound("metrics", "recorded: logged metrics that were compared"),
    ),
    links=(
        "https://github.com/huggingface/transformers/issues/45305",
        "https://github.com/huggingface/trl/pull/2776",
        "https://github.com/deepspeedai/DeepSpeed/issues/1488",
    ),
    needs=("torch", "transformers", "datasets", "peft", "trl"),
    skips=(rows.TOO_OLD,),
    gpus=RANKS,
    forks=True,
    timeout_s=600,
)


def run(context: Context) -> Iterator[Reading]:
    """Run the rows, and report the worst of each number."""
    chosen = levels.rows(levels.RANK_FACTORS, array.RANK_ROWS)
    yield from rows.run(context, chosen, WORST, (*WRONG, *SHOWN), ranks=RANKS)
