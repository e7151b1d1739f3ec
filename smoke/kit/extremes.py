"""The largest and smallest of measured values. NaN is worse than any number; the built-in max() and min() skip it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

# The number of values that the detail of a reading shows.
SHOWN = 4


def largest(values: Iterable[float], default: float | None = None) -> float:
    """The largest value, NaN if one of them is. Raises ValueError if there are none and no default."""
    numbers = list(values)
    if not numbers and default is not None:
        return default
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def smallest(values: Iterable[float], default: float | None = None) -> float:
    """The smallest value, NaN if one of them is. Raises ValueError if there are none and no default."""
    numbers = list(values)
    if not numbers and default is not None:
        return default
    return math.nan if any(map(math.isnan, numbers)) else min(numbers)


def worst(errors: Iterable[tuple[float, str]]) -> tuple[float, str]:
    """The largest error, NaN if one of them is, and the place of it. Raises ValueError if there are none."""
    return max(errors, key=lambda error: badness(error[0]))


def outermost(values: Mapping[str, float], *, least: bool = False) -> tuple[float, str]:
    """The largest value by place (or the smallest), NaN if one of them is, and a text with the outermost values."""
    ordered = sorted(values.items(), key=lambda item: badness(-item[1] if least else item[1]), reverse=True)
    return ordered[0][1], "; ".join(f"{place}: {value:.2g}" for place, value in ordered[:SHOWN])


def badness(error: float) -> float:
    """A sort key: NaN is worse than any number."""
    return math.inf if math.isnan(error) else error
