"""The test: do two groups of seeds come from the same training?

Every number is cut into windows of steps. Each window of each number gives three features of a seed: its mean (the
level), how much it moves from step to step (the noise), and how far its mean is from that of the other seeds (the
spread). The mean of a feature over all windows is one more. For each feature the statistic is the difference between
the means of the two groups, in standard deviations of all seeds together. The largest of all features counts.

If both groups come from the same training, it does not matter which seed is in which group. So the seeds are dealt
again and again at random, and the p-value is the share of deals whose largest statistic is at least as large. An alarm
at p ≤ 0.001 is false in one of a thousand comparisons at most, whatever the distribution of the numbers is, and however
many features there are. Runs of the same seed that resemble each other only make false alarms rarer.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from builder.trajectory.record import Record, Seed

ALARM = 0.001
DEALS = 2000
WINDOW = 10  # steps
FEWEST = 8  # seeds in a group: of fewer, too few deals are different
# Differences below a hundredth of what a number varies by over its whole curve are rounding, however constant they are.
RESOLUTION = 0.01
Kind = Literal["level", "noise", "spread"]


@dataclass(frozen=True)
class Feature:
    """A kind of feature of one number from step `first` to step `last`, counted from 1."""

    number: str
    kind: Kind
    first: int
    last: int


@dataclass(frozen=True)
class Departure:
    """A feature that leaves the band. `before` and `after` are the groups' means of it, p as if it were the largest."""

    feature: Feature
    before: float
    after: float
    p: float


@dataclass(frozen=True)
class Result:
    """The p-value of the comparison, the features that leave the band, the strongest first, and, by number, the
    smallest difference of its level that would have been noticed in half of its windows."""

    p: float
    departures: tuple[Departure, ...]
    noticed: dict[str, float]

    @property
    def alarm(self) -> bool:
        """Whether the two groups differ by more than chance."""
        return self.p <= ALARM


def compare(before: Record, after: Record) -> Result:
    """Compare two records of the same task and steps, in the numbers that both have. Each needs FEWEST seeds."""
    seeds = [*before.seeds, *after.seeds]
    size = len(before.seeds)
    features: list[Feature] = []
    columns: list[list[float]] = []  # of each feature, the value of each seed, the group `before` first
    floors: list[float] = []
    for name in (name for name in before.names if name in after.names):
        scale = RESOLUTION * _scale(seeds, name)
        for feature, column in _of_number(name, [seed.numbers[name] for seed in seeds], scale):
            features.append(feature)
            columns.append(column)
            floors.append(RESOLUTION if feature.kind == "noise" else scale)
    scaled = [_standardised(column, floor) for column, floor in zip(columns, floors, strict=True)]
    observed = [abs(sum(column[:size])) for column in scaled]
    largest = _deals(scaled, size)
    p_values = [_share(largest, value) for value in observed]
    order = sorted(range(len(features)), key=lambda i: observed[i], reverse=True)
    departures = tuple(
        Departure(features[i], statistics.fmean(columns[i][:size]), statistics.fmean(columns[i][size:]), p_values[i])
        for i in order
        if p_values[i] <= ALARM
    )
    critical = sorted(largest)[math.ceil((1 - ALARM) * DEALS) - 1]
    noticed = _noticed(features, columns, floors, critical, size)
    return Result(p_values[order[0]] if order else 1.0, departures, noticed)


def _scale(seeds: Sequence[Seed], name: str) -> float:
    """What a number varies by over the curves of all seeds: the standard deviation of all its values."""
    return _pstdev([value for seed in seeds for value in seed.numbers[name]])


def _of_number(name: str, curves: Sequence[Sequence[float]], scale: float) -> Iterator[tuple[Feature, list[float]]]:
    """The features of a number, with the value of each seed."""
    steps = len(curves[0])
    kinds: dict[Kind, list[list[float]]] = {}
    for first in range(0, steps, WINDOW):
        last = min(first + WINDOW, steps)
        for kind, column in _features([curve[first:last] for curve in curves], scale).items():
            kinds.setdefault(kind, []).append(column)
            yield Feature(name, kind, first + 1, last), column
    for kind, columns in kinds.items():
        if len(columns) > 1:
            yield Feature(name, kind, 1, steps), [statistics.fmean(values) for values in zip(*columns, strict=True)]


def _features(windows: Sequence[Sequence[float]], scale: float) -> dict[Kind, list[float]]:
    """The features of a window, for each seed. Noise is a logarithm: a factor counts the same, large or small."""
    levels = [statistics.fmean(window) for window in windows]
    middle = statistics.median(levels)
    # Of a number that never changes, the scale is 0: then any noise is something.
    floor = scale or 1e-300
    return {
        "level": levels,
        "noise": [math.log(max(_noise(window), floor)) for window in windows],
        "spread": [abs(level - middle) for level in levels],
    }


def _noise(window: Sequence[float]) -> float:
    """The standard deviation from step to step, by successive differences: a slope is no noise."""
    steps = [(after - before) ** 2 for before, after in pairwise(window)]
    return math.sqrt(math.fsum(steps) / len(steps) / 2) if steps else 0.0


def _pstdev(values: Sequence[float]) -> float:
    """Faster than statistics.pstdev, which computes with fractions."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _standardised(column: Sequence[float], floor: float) -> list[float]:
    """The values less their mean, in standard deviations of all seeds, or in floors where that is more."""
    mean = math.fsum(column) / len(column)
    unit = math.hypot(_pstdev(column), floor)
    return [(value - mean) / unit if unit else 0.0 for value in column]


def _deals(scaled: Sequence[Sequence[float]], size: int) -> list[float]:
    """The largest statistic of every deal. Always the same deals, so that a comparison gives the same again."""
    rows = list(zip(*scaled, strict=True))  # of each seed, the value of each feature
    draw = random.Random(0)
    largest = []
    for _ in range(DEALS):
        sums = list(map(sum, zip(*draw.sample(rows, size), strict=True)))
        largest.append(max(max(sums, default=0.0), -min(sums, default=0.0)))
    return largest


def _share(largest: Sequence[float], value: float) -> float:
    """The p-value: the deal that was observed is one of them, and rounding does not make it rare."""
    return (1 + sum(other >= value * (1 - 1e-9) for other in largest)) / (1 + len(largest))


def _noticed(
    features: Sequence[Feature], columns: Sequence[Sequence[float]], floors: Sequence[float], critical: float, size: int
) -> dict[str, float]:
    """By number, the difference of levels that reaches `critical`, the median over its windows."""
    differences: dict[str, list[float]] = {}
    for feature, column, floor in zip(features, columns, floors, strict=True):
        if feature.kind == "level":
            # The sum over a group is its size times its distance from the mean of both, which the other group shares.
            distance = critical * math.hypot(_pstdev(column), floor) / size
            differences.setdefault(feature.number, []).append(distance * len(column) / (len(column) - size))
    return {number: statistics.median(values) for number, values in differences.items()}
