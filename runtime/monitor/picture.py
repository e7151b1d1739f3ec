"""monitor.svg: a strip for each number that was judged, with its bound. Plain SVG, so that it needs no library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .judge import ADVICE, ALARM, NOT_RUN, Result, number

NAME = "monitor.svg"
WIDTH, HEIGHT, LEFT, RIGHT, ROW = 860, 46, 190, 210, 34
COLOURS = {"passed": "#2e7d32", ADVICE: "#b26a00", ALARM: "#c62828"}
POINTS = 600  # of a curve: more steps are drawn by the worst of several


def write(folder: Path, rows: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> Path | None:
    """Draw the picture; None if no check had anything to judge."""
    drawn = [result for result in results if result.outcome != NOT_RUN]
    if not drawn:
        return None
    strips = [_strip(rows, result, HEIGHT * place + 30) for place, result in enumerate(drawn)]
    height = HEIGHT * len(drawn) + 40
    steps = sorted({row["step"] for row in rows})
    title = f"the monitor's numbers, steps {steps[0]} to {steps[-1]}; dashed: the bound"
    text = "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" style="font: 11px sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="8" y="18" font-size="13">{escape(title)}</text>',
            *strips,
            "</svg>\n",
        ]
    )
    target = folder / NAME
    target.write_text(text, encoding="utf-8")
    return target


def _strip(rows: Sequence[Mapping[str, Any]], result: Result, top: int) -> str:
    check = result.check
    read = [(row["step"], number(row.get(check.column))) for row in rows]
    points = _thinned([(step, value) for step, value in read if value is not None and math.isfinite(value)])
    highest = max([check.at_most * 1.25, *(value for _, value in points), 1e-9])
    first, last = (points[0][0], points[-1][0]) if points else (0, 1)

    def x(step: float) -> float:
        return LEFT + (step - first) / max(1, last - first) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return top + ROW - math.sqrt(max(0.0, value) / highest) * (ROW - 6)

    colour = COLOURS[result.outcome]
    line = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in points)
    dots = "".join(
        f'<circle cx="{x(step):.1f}" cy="{y(value):.1f}" r="2.2" fill="{COLOURS[check.level]}"/>'
        for step, value in points
        if value > check.at_most
    )
    worst = "not a number" if result.worst is None or math.isnan(result.worst) else f"{result.worst:.3g}"
    label = f"{result.outcome}: worst {worst}, bound {check.at_most:g}"
    return (
        f'<text x="8" y="{top + 20}" fill="{colour}">{escape(check.name)}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(check.at_most):.1f}" y2="{y(check.at_most):.1f}" '
        'stroke="#999" stroke-dasharray="4 3"/>'
        f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.3"/>{dots}'
        f'<text x="{WIDTH - RIGHT + 8}" y="{top + 20}" fill="{colour}">{escape(label)}</text>'
    )


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most POINTS points: of several neighbours the one with the largest value."""
    points = sorted(points)
    size = max(1, math.ceil(len(points) / POINTS))
    return [max(points[i : i + size], key=lambda point: point[1]) for i in range(0, len(points), size)]
