"""The small pictures beside numbers: where a number lies within its bound, and where it lay before.

They are shapes in page colours, 200 bytes each. A chart library takes 40 ms
and 3 kB for one, and a certificate has more than two hundred; charts with axes are in charts.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

WIDTH = 100.0
HEIGHT = 12.0
MARGIN = 0.25  # of the range beyond the largest of value and bound, so that neither lies on the edge

Kind = TypeVar("Kind", bound=str)
Limit = TypeVar("Limit")


@dataclass(frozen=True)
class Bullet:
    """A number within its bound, in 0 … WIDTH: the allowed zone from `left` to `right`, and the number at `dot`."""

    left: float
    right: float
    dot: float
    inside: bool


def bullet(value: object, bound: Mapping[Kind, Limit] | None) -> Bullet | None:
    """The picture of a number; None where there is no number or no bound."""
    limits: dict[str, object] = {kind: limit for kind, limit in (bound or {}).items() if _number(limit)}
    if not _number(value) or not limits:
        return None
    assert isinstance(value, int | float)
    numbers = [float(value), *(float(limit) for limit in limits.values() if isinstance(limit, int | float))]
    scale = max(map(abs, numbers)) or 1.0  # the largest float has no room for a margin
    dot, least, most = (
        float(value) / scale, _share(limits.get("at_least"), scale), _share(limits.get("at_most"), scale)
    )  # fmt: skip
    if (target := _share(limits.get("equals"), scale)) is not None:
        half = max(abs(dot - target), abs(target), MARGIN) * (1 + MARGIN)
        low, high, least, most = target - half, target + half, target, target
    else:
        ends = [0.0, *(number / scale for number in numbers)]
        low, high = min(ends), max(ends)
        low, high = low - (MARGIN if low < 0 else 0), high + MARGIN
    inside = (least is None or dot >= least) and (most is None or dot <= most)

    def place(position: float) -> float:
        return round(WIDTH * (position - low) / (high - low), 1)

    return Bullet(
        0.0 if least is None else place(least), WIDTH if most is None else place(most), place(dot), inside
    )  # fmt: skip


def drawn(picture: Bullet | None) -> str:
    """The picture as SVG, in the colours of the style sheet."""
    if picture is None:
        return ""
    left, right = picture.left, picture.right
    edges = [left] if left > 0 else []
    edges += [right] if right < WIDTH and right != left else []
    lines = "".join(f'<path class="edge" d="M{edge} 1v10"/>' for edge in edges)
    return (
        f'<svg class="bullet{"" if picture.inside else " outside"}" viewBox="0 0 100 12" aria-hidden="true">'
        f'<path class="rail" d="M0 6h100"/><path class="zone" d="M{left} 6H{right}"/>{lines}'
        f'<circle cx="{picture.dot}" cy="6" r="3"/></svg>'
    )


def drawn_line(points: str) -> str:
    """A line through points as SVG."""
    return f'<svg class="line" viewBox="0 0 100 12" aria-hidden="true"><polyline points="{points}"/></svg>'


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _share(limit: object, scale: float) -> float | None:
    return float(limit) / scale if isinstance(limit, int | float) else None


def line(values: Sequence[float]) -> str:
    """The points of a line through the values, from the left to the right; empty for fewer than two, or equal ones."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if low == high or high - low == float("inf"):
        return ""
    steps = len(values) - 1
    return " ".join(
        f"{WIDTH * at / steps:.0f},{1 + (HEIGHT - 2) * (high - value) / (high - low):.1f}"
        for at, value in enumerate(values)
    )


def nearness(value: float, bound: Mapping[Kind, Limit] | None) -> float | None:
    """How much of its bound a number takes up: 0 is far from it, 1 is on it. None where there is no such share."""
    shares = []
    for kind, limit in (bound or {}).items():
        if not isinstance(limit, int | float) or isinstance(limit, bool):
            continue
        if kind == "equals":
            shares.append(0.0 if value == limit else 2.0)
        elif kind == "at_most" and limit > 0:
            shares.append(max(0.0, value / limit))
        elif kind == "at_least" and limit > 0 and value > 0:
            shares.append(limit / value)
    return max(shares, default=None)
