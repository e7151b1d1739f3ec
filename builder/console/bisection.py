"""A bisection on the terminal: its progress, and the table of what it tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from builder.base import text
from builder.console.progress import Line

if TYPE_CHECKING:  # each takes a tenth of a second
    from builder.bisect.journal import Trial, TriedSet

VERDICTS = {"green": "green", "red": "red", "other": "yellow", "unclear": "yellow", "flaky": "yellow"}
NAMED = 3  # changes of a set that are named in a line


class BisectionProgress(Line):
    """Every trial leaves a line behind."""

    def trial(self, tried: TriedSet, trial: Trial) -> None:
        """Show a trial."""
        self.leave(trial.outcome, VERDICTS.get(trial.outcome, ""), _few(tried.changes))


def _few(changes: Sequence[str]) -> str:
    """A set of changes in one line: all, or how many more."""
    if len(changes) <= NAMED + 1:
        return ", ".join(changes) or "none"
    return f"{', '.join(changes[:NAMED])} and {len(changes) - NAMED} more"


def tried_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What a bisection tried: the set, the verdict, how often it ran, and why."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("verdict")
    table.add_column("runs", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("with", overflow="fold")
    table.add_column("output", overflow="fold")
    for place, row in enumerate(rows, start=1):
        runs = f"{row['runs']}" + (f" ({row['earlier']} earlier)" if row["earlier"] else "")
        table.add_row(
            str(place), Text(row["verdict"], VERDICTS.get(row["verdict"], "")), runs, f"{row['seconds']:.1f}",
            text.line(_few(row["changes"])), str(row["reason"]).partition("\n")[0][:120],
        )  # fmt: skip
    return table
