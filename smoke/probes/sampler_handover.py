"""Does TRL hand the right weights, prompts and settings over to vLLM, and correct the loss for what vLLM sampled?

Catches what is silent with vLLM, and without it installed: adapters that are merged wrongly or not at all on the way to
the sampler, weights from before the last step, weights that a sleep took away, a prefix cache that is not reset, other
sampling settings than asked for, completions for other prompts, an importance ratio of the wrong log-probabilities, or
one without effect.

A stand-in for vLLM's engine (kit/standin.py) notes what it is given, and samples from those weights with logits that
are a little sharper than the policy's, as another precision would make them. Around it, each row of a covering array is
a short run of real GRPO, and the oracle of `interactions` judges everything that follows. A row that asks for an option
that this TRL does not have is left out. Needs one process; on a GPU, one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.kit import adapter, array, levels, rows
from smoke.probe import Bound, Context, Probe, Reading

WORST = ("weights_error", "gradient_error", "update_error", "loss_error", "metric_error", "eval_error")
COUNTED = (
    "handover_wrong",
    "data_wrong",
    "trained_wrong",
    "saved_wrong",
    "frozen_moved",
    "near_edge",
    "steps",
    "left_behind",
    "with_bonus",
)

PROBE = Probe(
    matters="the policy learns from what another engine sampled, with whatever weights and settings it was given",
    bounds=(
        Bound(
            "weights_error",
            "how far the worst tensor in the engine is from the policy's, adapters merged, at any generation, as a "
            "share of its norm: 2.6e-8 to 2.7e-8 over 12 seeds, the rounding of a merge; 0.01 without the adapter",
            at_most=1e-5,
            headline=True,
        ),
        Bound(
            "handover_wrong",
            "tensors that were not handed over or are foreign, settings that differ, a prefix cache that was not "
            "reset: 0 over 12 seeds; 15 in three rows whose cache is not reset",
            equals=0,
        ),
        Bound(
            "gradient_error",
            "the relative error of the worst tensor's gradient in any step of any row: 1.1e-5 to 8.7e-5 over "
            "12 seeds (up to 2.3e-4 with other rows); 0.75 without the correction",
            at_most=1e-3,
        ),
        Bound(
            "update_error",
            "the same for what a step changed: 6.9e-6 to 3.9e-5 over 12 seeds, up to 6.3e-4 with other rows, where "
            "AdamW divides a gradient that almost cancels by its size; 0.75 without the correction",
            at_most=3e-3,
        ),
        Bound("loss_error", "as in interactions: 1.6e-6 to 1.5e-5 over 12 seeds", at_most=2e-4),
        Bound(
            "metric_error",
            "as in interactions, and of the distance to the sampler: 3.4e-6 to 1.5e-5 over 12 seeds; 1.4 where "
            "distances cancel",
            at_most=2e-4,
        ),
        Bound("eval_error", "as in interactions: 1.3e-8 to 2.0e-8 over 12 seeds", at_most=1e-5),
        Bound("data_wrong", "as in interactions: 0 over 12 seeds", equals=0),
        Bound("trained_wrong", "as in interactions: 0 over 12 seeds", "completions", equals=0),
        Bound("saved_wrong", "as in interactions: 0 over 12 seeds", "tensors", equals=0),
        Bound(
            "frozen_moved",
            "tensors below an adapter that changed by more than the rounding of a merge: 0 over 12 seeds",
            "tensors",
            equals=0,
        ),
        Bound("rows_failed", "rows that ended with an error: 0 over 12 seeds", "rows", equals=0),
        Bound("near_edge", "steps left out, as in interactions: 0 over 12 seeds", "steps", at_most=8),
        Bound("with_bonus", "recorded: steps in which the adaptive bonus for entropy had an effect", "steps"),
        Bound("rows_run", "recorded: rows of the covering array that this TRL has the options for", "rows"),
        Bound(
            "left_behind",
            "as in interactions, away from the sampler: 59 to 123 over 12 seeds",
            "completions",
            at_least=15,
        ),
        Bound("steps", "recorded: steps of all rows", "steps"),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2856",
        "https://github.com/huggingface/trl/issues/5142",
        "https://github.com/vllm-project/vllm/issues/29341",
    ),
    needs=("torch", "transformers", "datasets", "peft", "trl"),
    skips=(rows.TOO_OLD, adapter.SERVER_ONLY),
    gpus=1,
    forks=True,
    timeout_s=600,
)


def run(context: Context) -> Iterator[Reading]:
    """Run the rows, and report the worst of each number."""
    adapter.colocated(context.device)  # raises NotApplicable if this TRL has no vLLM in its process
    yield from rows.run(context, levels.rows(levels.SAMPLER_FACTORS, array.SAMPLER_ROWS), WORST, COUNTED)
