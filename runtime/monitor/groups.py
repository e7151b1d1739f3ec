"""Advantages against rewards: what the published formulas give, from the rewards that really occurred.

DeepSeekMath (arXiv 2402.03300): the reward less the mean of its group, over the group's standard deviation (sample,
plus 1e-4 in TRL). Dr. GRPO (2503.20783): not divided. "batch": divided by the deviation of all. GDPO, TRL's
normalize_then_sum: each reward function is normalised in its group, then their weighted sum over all.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TINY = 1e-4  # what TRL adds to a standard deviation
ROUNDING = 32 * 1.2e-7  # how far float32 moves a sum of a few rewards, as a share of the largest
UNKNOWN = 0.02  # the same for an advantage whose reward is not known: a reward of 1 in a constant group


@dataclass(frozen=True)
class Rule:
    """How rewards become advantages. `scale`: group, batch or none."""

    size: int
    scale: str = "group"
    weights: Sequence[float] = ()
    normalise_first: bool = False
    skip_unscored: bool = True  # a completion for which no function returned a number counts for nothing; else for 0


@dataclass(frozen=True)
class Advantage:
    """What an advantage is by the formula, and how far float32 may be from it."""

    value: float
    noise: float


def expected(rewards: Sequence[Sequence[float]], rule: Rule) -> list[Advantage]:
    """The advantage of each completion. `rewards`: a row for each, a column for each function, NaN for none."""
    weights = list(rule.weights) or [1.0] * len(rewards[0])
    if rule.normalise_first:
        return _of_normalised(rewards, weights, rule)
    total = [math.nan if rule.skip_unscored and _unscored(row) else _weighted(row, weights) for row in rewards]
    overall, advantages = _spread(total), list[Advantage]()
    for start in range(0, len(total), rule.size):
        group = total[start : start + rule.size]
        spread = {"group": _spread(group), "batch": overall, "none": 1 - TINY}[rule.scale]
        advantages += _scaled(group, spread, _largest(rewards[start : start + rule.size], weights))
    return advantages


def error(advantages: Sequence[float], formula: Sequence[Advantage]) -> float:
    """The largest distance from the formula beyond what float32 rounds, as a share of the largest advantage."""
    size = max([*map(abs, advantages), *(abs(entry.value) for entry in formula)], default=0.0)
    excess = [abs(value - entry.value) - entry.noise for value, entry in zip(advantages, formula)]
    worst = math.nan if any(map(math.isnan, excess)) else max(excess, default=0.0)
    return worst if math.isnan(worst) else max(0.0, worst) / size if size > 0 else 0.0


def sums(advantages: Sequence[float], size: int, noise: Sequence[float]) -> float:
    """The largest sum of a group's advantages beyond what float32 rounds, as a share of the sum of their sizes."""
    worst = 0.0
    for start in range(0, len(advantages), size):
        group = advantages[start : start + size]
        total, excess = sum(map(abs, group)), abs(sum(group)) - sum(noise[start : start + size])
        worst = max(worst, max(0.0, excess) / total if total > 0 else 0.0)
    return worst


def alike(rewards: Sequence[Sequence[float]], rule: Rule) -> int:
    """The number of groups in which no two rewards differ by more than what float32 rounds. `rewards`: as above."""
    weights = list(rule.weights) or [1.0] * len(rewards[0])
    if rule.normalise_first:  # each function counts by itself, and what it did not score is the mean of its group
        counted = [([[row[i]] for row in rewards], [1.0], True) for i, weight in enumerate(weights) if weight]
    else:
        counted = [([list(row) for row in rewards], weights, rule.skip_unscored)]
    starts = range(0, len(rewards), rule.size)
    return sum(all(_same(rows[i : i + rule.size], own, skip) for rows, own, skip in counted) for i in starts)


def _same(rewards: Sequence[Sequence[float]], weights: Sequence[float], skip_unscored: bool) -> bool:
    totals = [_weighted(row, weights) for row in rewards if not (skip_unscored and _unscored(row))]
    return not totals or max(totals) - min(totals) <= ROUNDING * _largest(rewards, weights)


def constant(advantages: Sequence[float], size: int, noise: Sequence[float]) -> int:
    """The number of groups in which no advantage is larger than what float32 rounds."""
    return sum(
        all(abs(value) <= far for value, far in zip(advantages[i : i + size], noise[i : i + size]))
        for i in range(0, len(advantages), size)
    )


def _unscored(row: Sequence[float]) -> bool:
    return all(math.isnan(value) for value in row)


def _weighted(row: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(row, weights) if not math.isnan(value))


def _largest(rewards: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    sizes = [sum(abs(v * w) for v, w in zip(row, weights) if math.isfinite(v)) for row in rewards]
    return max(sizes, default=0.0)


def _mean(values: Sequence[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return statistics.fmean(numbers) if numbers else math.nan


def _spread(values: Sequence[float]) -> float:
    numbers = [value for value in values if not math.isnan(value)]
    return statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def _scaled(values: Sequence[float], spread: float, largest: float) -> list[Advantage]:
    """Values less their mean, over a deviation. One that is missing has the advantage 0."""
    mean, noise = _mean(values), ROUNDING * largest / (spread + TINY)
    return [Advantage(0.0 if math.isnan(value) else (value - mean) / (spread + TINY), noise) for value in values]


def _of_normalised(rewards: Sequence[Sequence[float]], weights: Sequence[float], rule: Rule) -> list[Advantage]:
    """The advantages where each function's rewards are first normalised in their group."""
    columns: list[list[Advantage]] = [[] for _ in weights]
    for place, column in enumerate(columns):
        for start in range(0, len(rewards), rule.size):
            group = [row[place] for row in rewards[start : start + rule.size]]
            largest = max((abs(value) for value in group if not math.isnan(value)), default=0.0)
            column += _scaled(group, _spread(group), largest)
    total, noise = [], []
    for row, advantages in zip(rewards, zip(*columns)):
        parts = [(weight, entry) for weight, entry in zip(weights, advantages)]
        value = sum(weight * entry.value for weight, entry in parts)
        total.append(math.nan if rule.skip_unscored and _unscored(row) else value)
        noise.append(sum(abs(weight) * (entry.noise + ROUNDING * abs(entry.value)) for weight, entry in parts))
    spread, common = _spread(total), statistics.fmean(noise)  # the mean has the mean of their errors
    scaled = _scaled(total, spread, 0.0)
    return [Advantage(entry.value, (own + common) / (spread + TINY)) for entry, own in zip(scaled, noise)]
