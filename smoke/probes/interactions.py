"""Where options of GRPO meet, are loss, gradients, updates, samples and logs still those of the published methods?

Catches faults that no option shows alone: a normaliser that forgets accumulation when completions are used twice, an
adapter that is lost when a run is resumed, rewards that lose their weights, a schedule that starts over.

Each row of a covering array (kit/array.py) is a short run of real GRPO; every pair of levels of two factors is in some
row. What really occurred in it, tokens, rewards and weights, goes to an oracle in plain PyTorch (kit/oracle.py), which
shares no code with the libraries: model, sampling settings, advantages, loss, gradients, clipping, update and metrics.
Rows run side by side, in forked processes. A row that asks for an option that this TRL does not have is left out. Needs
one process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.kit import array, levels, rows
from smoke.probe import Bound, Context, Probe, Reading

WORST = (
    "gradient_error",
    "update_error",
    "loss_error",
    "metric_error",
    "sampling_distance",
    "eval_error",
    "start_error",
)
WRONG = ("data_wrong", "trained_wrong", "saved_wrong", "frozen_moved")
SHOWN = ("steps", "clipped", "left_behind", "with_bonus", "masked", "none", "near_edge", "metrics")

PROBE = Probe(
    matters="options are tested one by one and used together: a wrong combination trains another objective, silently",
    bounds=(
        Bound(
            "gradient_error",
            "the relative error of the worst tensor's gradient in any step of any row: 5.4e-6 to 4.7e-5 over 12 "
            "seeds, the rounding of float32, most where large terms cancel (up to 5.7e-4 with other rows); 0.1 and "
            "more when an option has no effect",
            at_most=3e-3,
            headline=True,
        ),
        Bound(
            "update_error",
            "the same for what a step changed in the weights, beyond their rounding, against clipping, schedule and "
            "optimizer taken again in float64: 1.0e-5 to 3.8e-5 over 12 seeds",
            at_most=1e-3,
        ),
        Bound(
            "loss_error",
            "of the sum over a step's micro-batches, in units of the loss if it is above 1: 2.2e-6 to 1.0e-5 over "
            "12 seeds",
            at_most=2e-4,
        ),
        Bound(
            "metric_error",
            "the same for the worst of all logged metrics, such as KL divergence, entropy, clip ratios, lengths, "
            "rewards and the epoch, of training and of evaluations: 2.2e-6 to 1.0e-5 over 12 seeds",
            at_most=2e-4,
        ),
        Bound(
            "sampling_distance",
            "total variation between the distribution that a token was drawn from and what the policy and the settings "
            "make of its prompt, of the worst token: 1.4e-6 to 3.3e-6 over 12 seeds; 0.05 and more without one of the "
            "settings",
            at_most=1e-4,
        ),
        Bound(
            "eval_error",
            "the logged reward of an evaluation against the mean of its rewards: 9.9e-9 to 2.0e-8 over 12 seeds; 1 "
            "where a prompt has another number of completions than asked for",
            at_most=1e-5,
        ),
        Bound(
            "start_error",
            "how far a new adapter is from PEFT's start: the largest weight of A against the bound of its uniform "
            "distribution, as a share, and B against zero: 7e-6 to 6.2e-4 over 12 seeds; "
            "0.07 with A a fourteenth smaller",
            at_most=0.02,
        ),
        Bound(
            "data_wrong",
            "prompts that are not in the data, come again or come in another order than asked for, generations at the "
            "wrong moment, rewards shown another text or another row's column, tables of completions that show "
            "something else: 0 over 12 seeds",
            equals=0,
        ),
        Bound(
            "trained_wrong",
            "completions not trained on exactly as often as configured: 0 over 12 seeds; 42 in three rows that train "
            "on the first part of a batch again and again",
            "completions",
            equals=0,
        ),
        Bound("saved_wrong", "tensors of a checkpoint that are not the weights: 0 over 12 seeds", "tensors", equals=0),
        Bound("frozen_moved", "tensors below an adapter that a step changed: 0 over 12 seeds", "tensors", equals=0),
        Bound("rows_failed", "rows that ended with an error: 0 over 12 seeds", "rows", equals=0),
        Bound(
            "clipped",
            "completions with a ratio outside of the clipping range, on the side that counts: 237 to 320 over 12 "
            "seeds. Below its bound, clipping has hardly been tested; none where no row could be run",
            "completions",
            at_least=80,
        ),
        Bound(
            "near_edge",
            "steps left out, because rounding put a token on the other side of an edge than expected: 0 over 12 seeds",
            "steps",
            at_most=8,
        ),
        Bound("rows_run", "recorded: rows of the covering array that this TRL has the options for", "rows"),
        Bound(
            "left_behind",
            "completions that do not count, because the policy has moved away from them: 55 to 80 over 12 seeds. Below "
            "its bound, off_policy_mask_threshold has hardly been tested",
            "completions",
            at_least=15,
        ),
        Bound(
            "with_bonus",
            "steps in which the adaptive bonus for entropy had an effect: 6 to 13 over 12 seeds. Below its "
            "bound, it has hardly been tested",
            "steps",
            at_least=3,
        ),
        Bound("steps", "recorded: steps of all rows", "steps"),
        Bound("metrics", "recorded: logged metrics that were compared"),
        Bound("masked", "recorded: truncated completions that were masked", "completions"),
        Bound("none", "recorded: completions that some reward function did not judge", "completions"),
    ),
    links=(
        "https://github.com/huggingface/trl/pull/3029",
        "https://github.com/huggingface/trl/issues/2995",
        "https://github.com/huggingface/transformers/issues/40052",
    ),
    needs=("torch", "transformers", "datasets", "peft", "trl"),
    skips=(rows.TOO_OLD,),
    gpus=1,
    forks=True,
    timeout_s=600,
)


def run(context: Context) -> Iterator[Reading]:
    """Run the rows, and report the worst of each number."""
    yield from rows.run(context, levels.rows(levels.FACTORS, array.ROWS), WORST, (*WRONG, *SHOWN))
