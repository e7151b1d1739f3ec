"""Tables of results: what the probes of a suite measured, and what the controls showed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from builder.base import quantities, text

if TYPE_CHECKING:  # each takes a tenth of a second
    from builder.certify.certificate import Measurement, ProbeResult
    from builder.certify.control import ControlResult

STYLES = {"passed": "green", "not-run": "yellow"}


def plain(*columns: str) -> Table:
    """A table without lines, whose long cells go on in the next line."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if abs(value) < 1e15 and value == int(value):
            return f"{value:.0f}"
        return f"{value:.3g}" if abs(value) < 0.01 else f"{value:.4g}"
    return text.line(str(value), 100)


def bound(measurement: Measurement) -> str:
    return quantities.bounds(measurement.bound, number)


def results_table(probes: Sequence[ProbeResult]) -> Table:
    """Probe, outcome, the number that matters, its bound, seconds."""
    table = plain("probe", "outcome", "the number that matters")
    table.add_column("bound", no_wrap=True)
    table.add_column("seconds", justify="right")
    for probe in probes:
        headline = probe.headline
        shown = f"{headline.name} {number(headline.value)} {headline.unit}".rstrip() if headline else ""
        table.add_row(
            text.line(probe.name, 100),
            Text(probe.outcome, STYLES.get(probe.outcome, "red")),
            text.line(shown, 200),
            bound(headline) if headline else "",
            f"{probe.seconds:.1f}",
        )
    return table


def controls_table(controls: Sequence[ControlResult]) -> Table:
    """Control, the probes that must fail, their outcomes on it, the twin, and their outcomes on that."""
    table = plain("control", "must fail", "seen", "made good by", "seen then")
    for control in controls:
        bad, twin = control.bad.of(control.fails), control.twin.of(control.fails)
        table.add_row(
            control.name,
            "\n".join(control.fails),
            Text("\n".join(result.outcome for result in bad), "green" if control.caught else "red"),
            control.change,
            Text("\n".join(result.outcome for result in twin), "red" if control.false_alarm else "green"),
        )
    return table
