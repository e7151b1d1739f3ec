"""The picture of a verdict, as SVG: one panel for each number, the band of one record, and the mean of the other.

The band holds 95 of 100 single seeds, if they are normal: two standard deviations around the mean. The test judges the
means of many seeds, so it also sees what stays inside. Windows that leave the band have a mark.
"""

from __future__ import annotations

import math
import re
import statistics
import textwrap
from collections.abc import Sequence
from html import escape

from builder.base import text
from builder.trajectory.band import WINDOW
from builder.trajectory.record import Record
from builder.trajectory.verdict import NAMES, Verdict, labels

WIDTH, HEIGHT = 300, 190  # of a panel, in pixels
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 24, 22  # around the curves of a panel
COLUMNS = 3
LINE = 18  # of the text above the panels
LETTERS = 120  # of a line of that text
BAND, BEFORE, AFTER, MARK, INK, GRID = "#cfe0f3", "#3b6ea5", "#c2410c", "#fde3d3", "#1f2937", "#e5e7eb"
OPENING = re.compile(
    rb'<svg xmlns="[^"]+" viewBox="[0-9 ]+" width="\d+" height="\d+" role="img" aria-label="[^"]+" font'
)

Curve = list[tuple[float, float]]  # points: a step and a value


def svg(verdict: Verdict) -> str:
    """The picture."""
    before, after = verdict.before, verdict.after
    names = [name for name in before.names if name in after.names]
    left, right = labels(before, after)
    sentence = text.line(str(verdict))
    lines = textwrap.wrap(sentence, LETTERS)
    head = LINE * (len(lines) + 2)
    rows = math.ceil(len(names) / COLUMNS)
    width, height = COLUMNS * WIDTH, head + rows * HEIGHT
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(sentence)}" font-family="system-ui, sans-serif" font-size="12">'
    )
    parts = [
        opening,
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *(_text(LEFT, LINE * (i + 1), line, bold=True) for i, line in enumerate(lines)),
        *_legend(LINE * (len(lines) + 1), left, right),
    ]
    for i, name in enumerate(names):
        x, y = WIDTH * (i % COLUMNS), head + HEIGHT * (i // COLUMNS)
        parts += [f'<g transform="translate({x} {y})">', *_panel(verdict, name), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def is_one(content: bytes) -> bool:
    """Whether a file is such a picture."""
    return OPENING.match(content) is not None


def _legend(y: int, left: str, right: str) -> list[str]:
    middle = COLUMNS * WIDTH // 2
    return [
        f'<rect x="{LEFT}" y="{y - 9}" width="24" height="10" fill="{BAND}"/>',
        f'<path d="M{LEFT} {y - 4}h24" stroke="{BEFORE}" stroke-width="1.5"/>',
        _text(LEFT + 30, y, f"{text.line(left, 60)}: mean and band of its seeds"),
        f'<path d="M{middle} {y - 4}h24" stroke="{AFTER}" stroke-width="2"/>',
        _text(middle + 30, y, f"{text.line(right, 60)}: mean"),
    ]


def _panel(verdict: Verdict, name: str) -> list[str]:
    mean, spread = _curve(verdict.before, name)
    other, _ = _curve(verdict.after, name)
    low = [(step, value - 2 * deviation) for (step, value), deviation in zip(mean, spread, strict=True)]
    high = [(step, value + 2 * deviation) for (step, value), deviation in zip(mean, spread, strict=True)]
    values = [value for curve in (low, high, other) for _, value in curve]
    bottom, top = min(values), max(values)
    if top - bottom <= 1e-12 * max(1.0, abs(top)):
        bottom, top = bottom - 1, top + 1
    steps = verdict.before.steps

    def place(point: tuple[float, float]) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * point[0] / steps
        down = TOP + (HEIGHT - TOP - BOTTOM) * (top - point[1]) / (top - bottom)
        return f"{across:.1f} {down:.1f}"

    def line(curve: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(map(place, curve))

    return [
        _text(LEFT, TOP - 8, NAMES.get(name, name), bold=True),
        *_marks(verdict, name, steps),
        *(_tick(value, place((0, value)).split()[1]) for value in (bottom, (bottom + top) / 2, top)),
        f'<path d="{line([*high, *reversed(low)])}Z" fill="{BAND}"/>',
        f'<path d="{line(mean)}" fill="none" stroke="{BEFORE}" stroke-width="1.5"/>',
        f'<path d="{line(other)}" fill="none" stroke="{AFTER}" stroke-width="2"/>',
        _text(LEFT, HEIGHT - 6, "step 1"),
        _text(WIDTH - RIGHT, HEIGHT - 6, str(steps), end=True),
    ]


def _curve(record: Record, name: str) -> tuple[Curve, list[float]]:
    """By window, the mean of all seeds in its middle, and their standard deviation."""
    curve: Curve = []
    spread = []
    for first in range(0, record.steps, WINDOW):
        windows = [seed.numbers[name][first : first + WINDOW] for seed in record.seeds]
        levels = [math.fsum(window) / len(window) for window in windows]
        mean = math.fsum(levels) / len(levels)
        curve.append((first + len(windows[0]) / 2, mean))
        spread.append(statistics.stdev(levels, mean) if len(levels) > 1 else 0.0)
    return curve, spread


def _marks(verdict: Verdict, name: str, steps: int) -> list[str]:
    """A bar behind every window in which the number leaves the band."""
    departures = verdict.result.departures if verdict.result else ()
    windows = {(d.feature.first, d.feature.last) for d in departures if d.feature.number == name}
    unit = (WIDTH - LEFT - RIGHT) / steps
    return [
        f'<rect x="{LEFT + unit * (first - 1):.1f}" y="{TOP}" width="{unit * (last - first + 1):.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}" fill="{MARK}"/>'
        for first, last in sorted(windows)
    ]


def _tick(value: float, y: str) -> str:
    line = f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="{GRID}"/>'
    return line + _text(LEFT - 4, float(y) + 4, f"{value:.3g}", end=True)


def _text(x: float, y: float, words: str, *, bold: bool = False, end: bool = False) -> str:
    more = (' font-weight="600"' if bold else "") + (' text-anchor="end"' if end else "")
    return f'<text x="{x:g}" y="{y:g}" fill="{INK}"{more}>{escape(words)}</text>'
