"""What a person sees: calm progress on stderr while work is under way, the answer on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from builder.base import quantities, text
from builder.bisect.bisection import Row, Said
from builder.certify.certificate import Measurement, ProbeResult
from builder.certify.control import Seen
from builder.image.buildx import Step
from builder.intent import advisory
from builder.intent.advisory import Advisory


class Console(RichConsole):
    """A console on which text is text, whoever wrote it: no markup, no emoji codes, no commands to the terminal.

    Whatever is printed, in tables and progress lines too, comes as segments through `render`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def render_str(self, said: str, **options: Any) -> Text:  # type: ignore[override]
        """Cells are measured by this: what is replaced later takes its place already."""
        return super().render_str(text.printable(said), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            # Control segments are Rich's own: they move the cursor back to a progress line.
            yield segment if segment.control else Segment(text.printable(segment.text), segment.style)


out = Console(width=None if sys.stdout.isatty() else 200)
err = Console(stderr=True)

STYLES = {"passed": "green", "not-run": "yellow"}


def _bar() -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.fields[title]}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )


class Working:
    """One line on the terminal for the work under way: the steps of a build, then the probes of a suite.

    A probe that ended leaves a line behind; everything else is gone when the work is done.
    """

    def __init__(self, title: str) -> None:
        self.progress = _bar()
        self.task = self.progress.add_task("", total=None, title=title)

    def __enter__(self) -> Working:
        self.progress.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.progress.stop()

    def step(self, step: Step) -> None:
        """Show a step of a build."""
        self.progress.update(
            self.task, description=text.line(step.current, 60), completed=step.done, total=step.known or None
        )

    def event(self, event: dict[str, Any]) -> None:
        """Show what the suite's runner reports."""
        if event["event"] == "start":
            self.progress.reset(
                self.task, total=len(event["probes"]), title="suite", description="importing the stack", visible=True
            )
        elif event["event"] == "begin":
            self.progress.update(self.task, description=text.line(str(event["probe"]), 60))
        elif event["event"] == "end":
            outcome = str(event["outcome"])
            if err.is_terminal:
                err.print(
                    Text.assemble(
                        "  ", (f"{outcome:<8}", STYLES.get(outcome, "red")), f" {text.line(str(event['probe']), 100)}"
                    )
                )
            self.progress.advance(self.task)


class Counting:
    """One line on the terminal for pieces of work that run side by side; each leaves a line behind when it ended."""

    def __init__(self, title: str, total: int) -> None:
        self.progress = _bar()
        self.task = self.progress.add_task("", total=total, title=title)

    def __enter__(self) -> Counting:
        self.progress.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.progress.stop()

    def say(self, what: str) -> None:
        """Show what is under way."""
        self.progress.update(self.task, description=text.line(what, 60))

    def done(self, what: str, good: bool) -> None:
        """One piece has ended."""
        if err.is_terminal:
            err.print(
                Text.assemble(
                    "  ", ("as expected" if good else "not as expected", "green" if good else "red"), f" {what}"
                )
            )
        self.progress.advance(self.task)


class Trying:
    """One line on the terminal for a bisection; every set that was tried leaves a line behind."""

    def __init__(self, title: str) -> None:
        self.progress = _bar()
        self.task = self.progress.add_task("", total=None, title=title)

    def __enter__(self) -> Trying:
        self.progress.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.progress.stop()

    def say(self, what: str) -> None:
        """Show what is under way."""
        self.progress.update(self.task, description=text.line(what, 60))

    def told(self, row: Row, said: Said) -> None:
        """A set was asked once."""
        if err.is_terminal:
            err.print(
                Text.assemble("  ", (f"{said.outcome:<8}", VERDICTS.get(said.outcome, "")), f" {_few(row.changes)}")
            )


VERDICTS = {"green": "green", "red": "red", "other": "yellow", "unclear": "yellow", "flaky": "yellow"}
SHOWN = 3  # changes of a set that are named in a line
REASON = 20  # lines of a reason that are shown


def _few(changes: Sequence[str]) -> str:
    """A set of changes in one line: all, or how many more."""
    if len(changes) <= SHOWN + 1:
        return ", ".join(changes) or "none"
    return f"{', '.join(changes[:SHOWN])} and {len(changes) - SHOWN} more"


def tried_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What a bisection tried: the set, the verdict, how often it was asked, and why."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("verdict")
    table.add_column("runs", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("with", overflow="fold")
    table.add_column("it said", overflow="fold")
    for number_, row in enumerate(rows, start=1):
        runs = f"{row['runs']}" + (f" ({row['earlier']} earlier)" if row["earlier"] else "")
        table.add_row(
            str(number_), Text(row["verdict"], VERDICTS.get(row["verdict"], "")), runs, f"{row['seconds']:.1f}",
            text.line(_few(row["changes"])), str(row["reason"]).partition("\n")[0][:120],
        )  # fmt: skip
    return table


def number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if value and abs(value) < 0.01 else f"{value:.4g}"
    return text.line(str(value), 100)


def bound(measurement: Measurement) -> str:
    return quantities.bounds(measurement.bound, number)


def results_table(probes: Sequence[ProbeResult]) -> Table:
    """Probe, outcome, the number that matters, its bound, seconds."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("probe", "outcome", "the number that matters"):
        table.add_column(column, overflow="fold")
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


def reasons(
    probes: Sequence[ProbeResult], versions: Mapping[str, str], advisories: Sequence[Advisory]
) -> Iterator[Text]:
    """Why each probe that did not pass did not, why that matters, and what is known of it. `versions`: of the lock."""
    for probe in probes:
        if probe.outcome == "passed":
            continue
        name, said = text.line(probe.name, 100), _indented(probe.reason or "no reason given")
        yield Text.assemble((name, "bold"), f": {probe.outcome}: {said}")
        for one in probe.measurements:
            if not one.ok:
                why = f" ({one.why})" if one.why else ""
                yield Text(text.line(f"  {one.name} is {number(one.value)}, bound {bound(one)}{why}"))
        if probe.outcome == "not-run":
            continue
        if probe.matters:
            yield Text(text.line(f"  why it matters: {probe.matters}"))
        yield from _known(probe, versions, advisories)
        if probe.log_tail:
            yield from (
                Text("  │ " + text.line(line), style="dim") for line in probe.log_tail.strip().splitlines()[-8:]
            )


def _indented(said: str) -> str:
    """What a stranger said: a line that follows its first does not look like one of ours."""
    lines = [text.line(line) for line in said.splitlines()]
    return "\n    ".join([*lines[:REASON], *(["…"] if len(lines) > REASON else [])])


def _known(probe: ProbeResult, versions: Mapping[str, str], advisories: Sequence[Advisory]) -> Iterator[Text]:
    """What is known of a red probe: all that is certain, else the three that are nearest."""
    found = advisory.known(advisories, probe.name, f"{probe.reason}\n{probe.log_tail}", versions)
    for one in [one for one in found if one.judgement == "certain"] or found[:3]:
        of = one.advisory
        if one.judgement == "no":
            where = " or ".join(dict.fromkeys(filter(None, (advisory.ranges(other.packages) for other in of.affected))))
            yield Text(f"  seen before{f' with {where}' if where else ''}: {of.id} {of.summary}")
            continue
        # Where the symptom was seen, nobody needs to be told in which context it shows.
        sure = one.judgement == "certain" or one.shown
        yield Text.assemble("  known: ", (of.id, "bold"), f" {'matches' if sure else 'may match'}: {of.summary}")
        for number, affected in enumerate(() if sure else of.held(versions)):
            yield Text(f"         {'or ' if number else ''}if: {affected.context}")
        yield Text(f"         fix: {of.way_out}")


def controls_table(seen: Sequence[Seen]) -> Table:
    """Control, the probes that must fail, what they said of it, the twin, what they said of that."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("control", "must fail", "seen", "made good by", "seen then"):
        table.add_column(column, overflow="fold")
    for one in seen:
        bad, twin = one.bad.of(one.fails), one.twin.of(one.fails)
        table.add_row(
            one.name,
            "\n".join(one.fails),
            Text("\n".join(result.outcome for result in bad), "green" if one.caught else "red"),
            one.change,
            Text("\n".join(result.outcome for result in twin), "red" if one.false_alarm else "green"),
        )
    return table


def surprises(seen: Sequence[Seen], advisories: Sequence[Advisory]) -> Iterator[Text]:
    """What was not as expected, and which other probes were red."""
    for one in seen:
        if not one.caught:
            yield Text.assemble(
                (one.name, "bold"), f": must fail {', '.join(one.fails)}, saying {one.reason!r}; it did:"
            )
            yield from reasons(one.bad.of(one.fails), one.bad.versions, advisories)
        if one.false_alarm:
            yield Text.assemble((one.name, "bold"), f": its twin ({one.change}) must pass; it did not:")
            yield from reasons(one.twin.of(one.fails), one.twin.versions, advisories)
        for side, results in (("control", one.bad.results), ("twin", one.twin.results)):
            others = [r for r in results if r.name not in one.fails and r.outcome not in ("passed", "not-run")]
            for result in others:
                said = _indented(result.reason or "")
                yield Text.assemble((one.name, "bold"), f": on the {side} also {result.name}: {said}")


@contextmanager
def spinner(what: str) -> Iterator[None]:
    if not err.is_terminal:
        yield
        return
    with err.status(Text(what)):  # of a plain text it would read the markup
        yield


def verbatim(said: str) -> None:
    """Text of many lines, such as a difference between two files, on stdout."""
    print(text.printable(said), end="")


def note(message: str) -> None:
    """One line for the person, apart from the answer."""
    print(text.printable(message), file=sys.stderr, flush=True)
