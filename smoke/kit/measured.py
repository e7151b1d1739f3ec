"""How far a run was from the oracle: every number that a row of a covering array is judged by."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from smoke.kit import evaluation, extremes, factors, metrics, optimizer, oracle, sampled
from smoke.kit.entropy import Bonus
from smoke.kit.journal import Weights
from smoke.kit.oracle import Run
from smoke.kit.samples import Sampled

if TYPE_CHECKING:
    from smoke.kit.interaction import Stretch, Training

# Where advantages are zero, large terms of a gradient cancel, and float32 leaves up to 1.3e-6 of them.
CANCELLED = 5e-3
ROUNDED = 1e-5  # of an update
AGREED = 1e-4  # errors of a step that is as expected: a token on the other side of an edge makes larger ones

# The worst of each number over the whole run, and where it was.
Measured = dict[str, tuple[float, str]]


def measure(training: Training, stretches: list[list[Stretch]]) -> Measured:
    """How far a run was from the oracle; `stretches` are those of every rank, one after the other."""
    row = training.row
    initial = stretches[0][0].journal.steps[0].before
    worst: dict[str, dict[str, float]] = {}
    counts: Counter[str] = Counter()
    wrong: dict[str, list[str]] = {"data_wrong": [], "trained_wrong": [], "saved_wrong": []}
    follower, bonus, earlier = optimizer.Follower(row), Bonus(row), 0
    batches: list[list[Sampled]] = []
    for stretch in stretches:
        run = Run(row, training.shape, training.adapter, initial, [part.journal for part in stretch], earlier)
        wrong["data_wrong"] += list(sampled.data_wrong(training, run))
        wrong["data_wrong"] += list(sampled.table_wrong(training, run))
        wrong["trained_wrong"] += run.trained_wrong()
        wrong["saved_wrong"] += stretch[0].saved_wrong
        _measure_steps(run, follower, bonus, worst, counts)
        if (handover := stretch[0].handover) is not None:
            wrong.setdefault("handover_wrong", []).extend(handover.wrong)
            worst.setdefault("weights_error", {})[f"from step {run.journals[0].start}"] = handover.error
        for place, distance in sampled.distances(run).items():
            worst.setdefault("sampling_distance", {})[place] = distance
        for place, error in evaluation.reward_errors(training, run).items():
            worst.setdefault("eval_error", {})[place] = error
        for near, errors in evaluation.metric_errors(run, bonus):
            if near < oracle.EDGE and _went_otherwise({"metric_error": errors}):
                counts["near_edge"] += 1
                continue
            counts["metrics"] += len(errors)
            worst.setdefault("metric_error", {}).update(errors)
        batches += run.batches
        earlier = run.tokens(len(run.batches))
    if training.adapter is not None:
        worst["start_error"] = start_errors(initial)
    wrong["data_wrong"] += sampled.ordered_wrong(training, batches)
    wrong["data_wrong"] += sampled.repeated([part.journal for stretch in stretches for part in stretch[:1]])
    result: Measured = {name: extremes.outermost(values) for name, values in worst.items()}
    result |= {name: (float(len(texts)), "; ".join(texts[:3])) for name, texts in wrong.items()}
    result |= {name: (float(count), "") for name, count in counts.items()}
    return result


def start_errors(initial: Weights) -> dict[str, float]:
    """How far a new adapter's start is from what PEFT promises.

    B is zero, so that the first step has the model's own outputs. A is uniform within one over the root of its inputs
    (Kaiming's bound for a = sqrt(5)); the largest of so many numbers is almost at the bound.
    """
    shares = [w.abs().max().item() * math.sqrt(w.shape[1]) for name, w in initial.items() if ".lora_A." in name]
    moved = [w.abs().max().item() for name, w in initial.items() if ".lora_B." in name]
    return {"A": abs(1 - max(shares, default=math.nan)), "B": max(moved, default=math.nan)}


def _measure_steps(
    run: Run, follower: optimizer.Follower, bonus: Bonus, worst: dict[str, dict[str, float]], counts: Counter[str]
) -> None:
    journal = run.journals[0]
    for index, step in enumerate(journal.steps):
        number = journal.start + index + 1
        expected = run.expected(index, bonus)
        counts["steps"] += 1
        counts["metrics"] += 0
        clipped = follower.clip(expected.gradients, expected.norm)
        counts["limited"] += clipped is not expected.gradients
        update = follower.step(number - 1, clipped)
        errors = _step_errors(run, index, expected, clipped, update, follower.amplification(number - 1))
        if follower.lost:
            del errors["update_error"]
        if expected.near < oracle.EDGE and _went_otherwise(errors):
            # Rounding may have decided on which side a token is: nothing can be said of this step, nor of what the
            # optimizer remembers of it.
            counts["near_edge"] += 1
            follower.lost = follower.lost or follower.remembers
            continue
        _count(run, expected, counts)
        counts["with_bonus"] += bonus.effects[-2] > 0 and run.row["entropy"] == "adaptive bonus"
        counts["metrics"] += len(errors["metric_error"])
        for name, named in errors.items():
            worst.setdefault(name, {}).update(named)
        after = journal.after(index)
        # Merging an adapter for the sampler and taking it out again leaves rounding.
        frozen = [n for n, w in step.before.items() if n not in update and (after[n] - w).abs().max() > 1e-6]
        counts["frozen_moved"] += len(frozen)


def _went_otherwise(errors: dict[str, dict[str, float]]) -> bool:
    """Did a step take another side than expected? That leaves numbers that are wrong, and none that is NaN."""
    values = [error for named in errors.values() for error in named.values()]
    return not any(map(math.isnan, values)) and max(values, default=0.0) > AGREED


def _step_errors(
    run: Run, index: int, expected: oracle.Expected, clipped: Weights, update: Weights, amplification: float
) -> dict[str, dict[str, float]]:
    """How far the step at `index` was from what it should have done: by number, and by the place in the run."""
    journal = run.journals[0]
    step, place = journal.steps[index], f"step {journal.start + index + 1}"
    errors: dict[str, dict[str, float]] = {}
    if step.gradients:
        distances = optimizer.errors(step.gradients, clipped, rounding=CANCELLED)
        errors["gradient_error"] = {f"{place}, {name}": error for name, error in distances.items()}
    moved = {name: optimizer.moved(step.before[name], journal.after(index)[name], update[name]) for name in update}
    distances = optimizer.errors(moved, update, rounding=max(ROUNDED, CANCELLED * amplification))
    errors["update_error"] = {f"{place}, {name}": error for name, error in distances.items()}
    loss = sum(sum(j.steps[index].losses) for j in run.journals) / len(run.journals)
    errors["loss_error"] = {place: abs(loss - expected.loss) / max(1.0, abs(expected.loss))}
    logged = [entry for entry in journal.log if "loss" in entry]
    distances = metrics.errors(metrics.of_step(run, index, expected), logged[index] if index < len(logged) else {})
    errors["metric_error"] = {f"{place}, {name}": error for name, error in distances.items()}
    return errors


def _count(run: Run, expected: oracle.Expected, counts: Counter[str]) -> None:
    """What the step had of what faults need to show: clipped and masked tokens, ratios other than one, a direction."""
    counts["steps_without_gradient"] += expected.norm < 1e-9
    for part, scores in expected.scores:
        for sample, score in zip(part.samples, scores, strict=True):
            if sample is None or score is None:
                counts["masked"] += 1
                continue
            ratio = (score.now - score.then).exp()
            counts["off_policy"] += bool((ratio - 1).abs().max() > 1e-3)
            counts["clipped"] += bool((ratio > 1 + factors.CLIP).any()) and sample.advantage > 0
            counts["clipped"] += bool((ratio < 1 - factors.CLIP).any()) and sample.advantage < 0
            counts["left_behind"] += run.left_behind(sample, score)
            counts["none"] += any(map(math.isnan, sample.rewards))
            counts["truncated"] += sample.truncated
            counts["completions"] += 1
