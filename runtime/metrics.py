"""The metrics of a run: rows of metrics.jsonl, and a plot of them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"
PLOT = "plot.png"
# Curves by their label, with the names that TRL releases use; the first that occurs is plotted.
CURVES = {
    "reward": ("reward",),
    "KL divergence (nats)": ("kl",),
    "completion length (tokens)": ("completions/mean_length", "completion_length"),
    "loss": ("loss",),
}
PROGRESS = {"reward": "{:.3f}", "loss": "{:.4g}"}  # what a step shows, with its format: the first that was logged


def add(folder: Path, row: Mapping[str, float]) -> None:
    """Append a row. Numbers that are not finite become strings: JSON has no number for them."""
    line = json.dumps({key: value if math.isfinite(value) else str(value) for key, value in row.items()})
    with (folder / METRICS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of metrics.jsonl, without a truncated one."""
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
    """Remove the rows after this step: a resumed run will write them again."""
    metrics = folder / METRICS
    rows = [row for row in read(folder) if row.get("step", 0) <= step]
    if metrics.is_file():
        partial = metrics.with_suffix(".partial")
        partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        partial.replace(metrics)


def progress(numbers: Mapping[str, float]) -> str:
    """What is shown of a step, such as "reward 0.250"; empty where neither a reward nor a loss was logged."""
    return next((f"{name} {form.format(numbers[name])}" for name, form in PROGRESS.items() if name in numbers), "")


def curves(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[float, float]]]]:
    """Labels and points, (step, value), of what can be plotted."""
    drawn = []
    for title, names in CURVES.items():
        name = next((name for name in names if any(name in row for row in rows)), "")
        points = [(row["step"], row[name]) for row in rows if name in row and not isinstance(row[name], str)]
        if points:
            drawn.append((title, points))
    return drawn


def draw(folder: Path) -> Path | None:
    """Draw plot.png: reward, KL divergence, completion length and loss over the steps. None if there is nothing."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = curves(read(folder))
    if not drawn:
        return None
    figure, axes = pyplot.subplots(len(drawn), 1, figsize=(7, 2.2 * len(drawn)), sharex=True, squeeze=False)
    for axis, (title, points) in zip(axes[:, 0], drawn, strict=True):
        axis.plot(*zip(*points, strict=True), linewidth=1.5)
        axis.set_ylabel(title, fontsize=8)
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xlabel("step")
    figure.tight_layout()
    partial = folder / f".{PLOT}"
    figure.savefig(partial, format="png", dpi=120)
    pyplot.close(figure)
    partial.replace(folder / PLOT)
    return folder / PLOT
