"""What a run measured: rows of metrics.jsonl, and the plot that is drawn of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
PLOT = "plot.png"
# The names that TRL has had for it; the first that is there is drawn.
DRAWN = {
    "reward": ("reward",),
    "KL divergence (nats)": ("kl",),
    "completion length (tokens)": ("completions/mean_length", "completion_length"),
}


def add(folder: Path, row: Mapping[str, float]) -> None:
    """Append a row. What is not finite is written as a word: JSON has no number for it."""
    line = json.dumps({key: value if math.isfinite(value) else str(value) for key, value in row.items()})
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl; one that was cut short is left out."""
    rows = []
    try:
        text = (folder / METRICS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cut(folder: Path, step: int) -> None:
    """Leave out what a run that is resumed from this step is about to do again."""
    metrics = folder / METRICS
    kept = [row for row in read(folder) if row.get("step", 0) <= step]
    if metrics.is_file():
        beside = metrics.with_suffix(".partial")
        beside.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
        beside.replace(metrics)


def draw(folder: Path) -> Path | None:
    """plot.png: reward, KL divergence and completion length over the steps; None when there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read(folder)
    curves = []
    for title, names in DRAWN.items():
        name = next((name for name in names if any(name in row for row in rows)), None)
        points = [(row["step"], row[name]) for row in rows if name in row and not isinstance(row[name], str)]
        if points:
            curves.append((title, points))
    if not curves:
        return None
    figure, axes = pyplot.subplots(len(curves), 1, figsize=(7, 2.2 * len(curves)), sharex=True, squeeze=False)
    for axis, (title, points) in zip(axes[:, 0], curves, strict=True):
        axis.plot(*zip(*points, strict=True), linewidth=1.5)
        axis.set_ylabel(title, fontsize=8)
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xlabel("step")
    figure.tight_layout()
    beside = folder / f".{PLOT}"
    figure.savefig(beside, format="png", dpi=120)
    pyplot.close(figure)
    beside.replace(folder / PLOT)
    return folder / PLOT
