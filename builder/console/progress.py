"""Progress: one line on the terminal for the work under way, which disappears when the work is done.

Where there is no terminal, a line every half minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from builder.base import text
from builder.console import terminal
from builder.console.reminder import Reminder
from builder.console.tables import STYLES

if TYPE_CHECKING:  # each takes a tenth of a second
    from builder.certify.transcript import Event
    from builder.image.buildx import BuildStep

WIDTH = 60  # characters of what is under way


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """What is under way, where its steps are not known."""
    with Reminder(lambda: what):
        if not terminal.err.is_terminal:
            yield
            return
        with terminal.err.status(Text(what)):  # in a plain string it would read markup
            yield


class Line:
    """A spinner, a title, a bar and what is under way."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[title]}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=terminal.err,
            transient=True,
            disable=not terminal.err.is_terminal,
        )
        self.task = self.progress.add_task("", total=total, title=title)
        self._name = title
        self._reminder = Reminder(self._under_way)

    def __enter__(self) -> Self:
        self.progress.start()
        self._reminder.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._reminder.__exit__(kind, error, trace)
        self.progress.stop()

    def _under_way(self) -> str:
        """What the line shows, in words."""
        task = self.progress.tasks[0]
        title = str(task.fields["title"])
        parts = [
            title if title == self._name else f"{self._name}, {title}",
            f"{task.completed:.0f} of {task.total:.0f}" if task.total else "",
            task.description,
        ]
        return ", ".join(filter(None, parts))

    def say(self, what: str) -> None:
        """Show what is under way."""
        self.progress.update(self.task, description=text.line(what, WIDTH))

    def step(self, step: BuildStep) -> None:
        """Show a step of a build. It is no part of a suite that ended before it."""
        self.progress.tasks[0].total = step.known or None  # update() would keep the suite's
        what = text.line(step.current, WIDTH)
        self.progress.update(self.task, description=what, completed=step.done, title=self._name)

    def leave(self, outcome: str, style: str, what: str) -> None:
        """Leave a line behind."""
        if terminal.err.is_terminal:
            terminal.err.print(Text.assemble("  ", (f"{outcome:<8}", style), f" {text.line(what, 200)}"))


class Working(Line):
    """The steps of a build, then the probes of a suite. Every probe that ended leaves a line behind."""

    def event(self, event: Event) -> None:
        """Show what the suite's runner reports."""
        if event["event"] == "start":
            self.progress.reset(
                self.task, total=len(event["probes"]), title="suite", description="importing the stack", visible=True
            )
        elif event["event"] == "begin":
            self.say(str(event["probe"]))
        elif event["event"] == "end":
            outcome = str(event["outcome"])
            self.leave(outcome, STYLES.get(outcome, "red"), str(event["probe"]))
            self.progress.advance(self.task)


class Training(Line):
    """The steps of a build, then the seeds of the golden trajectories. Every seed that failed leaves a line behind."""

    def __init__(self, title: str, seeds: int) -> None:
        super().__init__(title)
        self._seeds = seeds
        self._ended = 0

    def seed(self, seed: int, good: bool) -> None:
        """Show that a seed has ended."""
        self._ended += 1
        self.progress.update(self.task, description=f"seed {seed}", completed=self._ended, total=self._seeds)
        if not good:
            self.leave("failed", "red", f"seed {seed}")


class Counting(Line):
    """Pieces of work that run side by side; each leaves a line behind when it ended."""

    def done(self, what: str, good: bool) -> None:
        """One piece has ended."""
        self.leave("as expected" if good else "not as expected", "green" if good else "red", what)
        self.progress.advance(self.task)
