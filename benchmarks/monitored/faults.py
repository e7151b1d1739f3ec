"""Faults that a real run has had, each put into one run: what a change of a library or a mistake of a user does.

`before` comes before the trainer is made, `after` after it, and before the monitor is put on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.monitored import defects


@dataclass(frozen=True)
class Fault:
    """`caught`: the checks of which one must raise an alarm. `job`: what the run must have for it to show."""

    why: str
    caught: tuple[str, ...]
    before: Callable[[], None] = defects.nothing
    after: Callable[[Any], None] = defects.nothing
    job: tuple[tuple[str, Any], ...] = ()


_BETA = (("options", {"beta": 0.05}),)
_COLD = (("options", {"temperature": 0.7}),)
_HOT = (("options", {"learning_rate": 2e-2, "per_device_train_batch_size": 32, "num_generations": 8}),)
_TWICE = (("options", {"num_iterations": 2}),)
_NO_RATE = (("options", {"learning_rate": 0.0}),)
_STANDIN = (("sampler", "standin"),)
_STANDIN_COLD = (("sampler", "standin"), ("options", {"temperature": 0.7}))
_ALL_CUT = (("options", {"mask_truncated_completions": True, "max_completion_length": 1}),)
_RANKS = (("ranks", 2),)
_ACCUMULATED = (("options", {"gradient_accumulation_steps": 2}),)

FAULTS: dict[str, Fault] = {
    "advantage-sign": Fault("training lowers the reward", ("advantages-rewards",), after=defects.output(defects.flip)),
    "advantage-no-baseline": Fault(
        "the group's mean is not subtracted",
        ("advantages-sum", "advantages-rewards"),
        after=defects.output(defects.no_baseline),
    ),
    "advantage-of-another": Fault(
        "each completion has its neighbour's advantage", ("advantages-rewards",), after=defects.output(defects.rotated)
    ),
    "advantage-zeroed": Fault(
        "half of the completions reach the loss with the advantage 0",
        ("gradient-reaches",),
        after=defects.in_loss(defects.zeroed),
    ),
    "loss-sign": Fault("the loss is negated", ("gradient-direction",), after=defects.in_loss(defects.negated)),
    "completions-masked": Fault(
        "the loss drops every second completion", ("gradient-reaches",), after=defects.in_loss(defects.half_masked)
    ),
    "buffer-for-ever": Fault(
        "the first buffer is used for ever", ("samples-foreign",), after=defects.first_batch_again
    ),
    "micro-batches-lost": Fault(
        "only the first micro-batch of a generation is used",
        ("samples-missing",),
        after=defects.generates_early,
        job=_ACCUMULATED,
    ),
    "reward-constant": Fault("the reward is always 0.5", ("rewards-vary",), after=defects.constant_reward),
    "reward-infinite": Fault("a reward divides by zero", ("rewards-finite",), after=defects.infinite_reward),
    "all-truncated": Fault(
        "every completion is truncated, and truncated ones are masked", ("loss-has-tokens",), job=_ALL_CUT
    ),
    "end-unknown": Fault("the trainer knows one end token of two", ("completions-stop",), after=defects.end_unknown),
    "reference-of-another": Fault(
        "the reference is another model", ("kl-starts-at-zero",), after=defects.reference_of_another, job=_BETA
    ),
    "reference-is-policy": Fault(
        "the reference is the policy itself", ("kl-moves",), after=defects.reference_is_policy, job=_BETA
    ),
    "adapter-stays-on": Fault(
        "the reference has the policy's adapter",
        ("kl-moves",),
        after=defects.adapter_stays_on,
        job=(*_BETA, ("lora", {"r": 4})),
    ),
    "no-update": Fault("the learning rate is 0", ("weights-move",), job=_NO_RATE),
    "optimizer-of-others": Fault(
        "the optimizer has other parameters", ("weights-move",), after=defects.other_parameters
    ),
    "optimizer-ascends": Fault("the optimizer maximizes the loss", ("update-descends",), after=defects.ascends),
    "double-temperature": Fault(
        "the sampler divides by the temperature twice", ("sampled-from-policy",), after=defects.twice_as_cold, job=_COLD
    ),
    "greedy": Fault(
        "the sampler takes the likeliest token", ("completions-differ", "sampled-from-policy"), after=defects.greedy
    ),
    "engine-same-seed": Fault(
        "vLLM starts every completion from the same seed",
        ("completions-differ",),
        after=defects.same_seed,
        job=_STANDIN,
    ),
    "stale-sampler": Fault(
        "the sampler keeps the first weights", ("sampled-from-policy",), after=defects.stale_policy, job=_HOT
    ),
    "not-finite": Fault("log-probabilities overflow", ("numbers-finite",), after=defects.overflow),
    "old-policy-scored-otherwise": Fault(
        "the old policy's log-probabilities have another temperature",
        ("ratio-starts-at-one",),
        after=defects.output(defects.old_policy_colder),
        job=_TWICE,
    ),
    "engine-sync-skipped": Fault(
        "the trainer takes vLLM's weights for new", ("weights-synced",), after=defects.sync_skipped, job=_STANDIN
    ),
    "engine-never-synced": Fault(
        "a sync does nothing", ("weights-in-engine",), after=defects.never_synced, job=_STANDIN
    ),
    "engine-misses-a-tensor": Fault(
        "a sync leaves the output layer out", ("weights-in-engine",), after=defects.one_tensor_left_out, job=_STANDIN
    ),
    "engine-slept": Fault(
        "vLLM wakes with the initial checkpoint", ("weights-in-engine",), after=defects.asleep, job=_STANDIN
    ),
    "engine-double-temperature": Fault(
        "vLLM divides by the temperature twice",
        ("sampled-from-policy",),
        after=defects.engine_twice_as_cold,
        job=_STANDIN_COLD,
    ),
    "engine-scores-unscaled": Fault(
        "vLLM's log-probabilities are without the temperature",
        ("sampler-trainer",),
        after=defects.scored_without_temperature,
        job=_STANDIN_COLD,
    ),
    "gradients-not-averaged": Fault(
        "each rank trains on its own gradients", ("ranks-agree",), after=defects.ranks_alone, job=_RANKS
    ),
}


def job(name: str, seed: int = 1) -> dict[str, Any]:
    """The job in which a fault must show."""
    return {"name": name, "fault": name, "seed": seed, **dict(FAULTS[name].job)}
