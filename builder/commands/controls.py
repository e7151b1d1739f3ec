"""The suite on version sets that are known to be bad: controls."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, sources
from builder.base.project import Project
from builder.certify import certificate, control
from builder.certify.cache import Cache
from builder.certify.control import ControlResult, Side
from builder.commands import usage
from builder.commands.common import AsJson, print_json
from builder.intent import advisory, stack
from builder.intent.advisory import Advisory
from builder.pages import evidence, generate, records
from builder.pages.records import ControlRow

SAMPLE = 3  # controls that `--changed` runs, although their record is current


def controls_(
    context: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(help="Default: all.", show_default=False)] = None,
    relock: Annotated[bool, typer.Option("--lock", help="Resolve their locks again. Run nothing.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Run every probe, not just those that must fail.")] = False,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed",
            help="Run the controls that docs/evidence/controls.json does not cover for this suite and these locks, "
            "plus three others that rotate daily.",
        ),
    ] = False,
    record: Annotated[bool, typer.Option("--record", help="Write docs/evidence/controls.json.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many at a time.", show_default="one per core")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the suite on known-bad version sets and their twins."""
    if relock:
        usage.refuse(context, ("full", "changed", "record", "jobs"), "does not go with --lock, which runs nothing")
    if changed:
        usage.refuse(context, ("record",), "does not go with --changed: the record would lack the controls left out")
    home = project.find()
    selected = list(dict.fromkeys(names or stack.control_names(home)))
    for name in selected:
        stack.load_control(home, name)
    if not selected:
        raise errors.BadInputError("the project has no control", next_step="git checkout lockfiles/controls")
    if relock:
        _lock(home, selected, as_json)
        return
    if changed:
        selected = _changed(home, selected)
    advisories = advisory.load_all(home)
    with home.holding(".controls") as scratch:
        results = _run(home, [control.load(home, name) for name in selected], scratch, jobs, full)
        summary = control.summary(results)
        if record:
            command = " ".join(["vetted controls", *(names or ()), *(["--full"] if full else []), "--record"])
            evidence.record(home, "controls", command, summary, scratch)
            generate.refresh(home, scratch)
    if as_json:
        print_json(summary)
    else:
        _print(results, summary, advisories)
    if not all(result.good for result in results):
        raise typer.Exit(1)


def _lock(home: Project, names: Sequence[str], as_json: bool) -> None:
    answer = {}
    for name in names:
        with home.holding(f".control-{name}") as scratch, console.spinner(f"{name}: resolving"):
            changed = control.make(home, name, scratch)
        answer[name] = {"changed": changed}
        if not as_json:
            console.out.print(f"{name}: {'locked' if changed else 'unchanged'}")
    if as_json:
        print_json(answer)


def _changed(home: Project, names: Sequence[str]) -> list[str]:
    """The controls that the record does not prove, and a sample of those that it does."""
    recorded = evidence.read(home, records.Controls)
    current = recorded is not None and recorded.suite == sources.digest(home.smoke)
    rows = {row.control: row for row in recorded.rows} if recorded and current else {}
    proven = [name for name in names if name in rows and _proves(rows[name], control.load(home, name))]
    day = certificate.today().toordinal() * SAMPLE
    sample = {proven[(day + offset) % len(proven)] for offset in range(SAMPLE)} if proven else set()
    chosen = [name for name in names if name in sample or name not in proven]
    if proven:
        path = home.relative(evidence.path(home, records.Controls.FILE))
        console.err.print(
            f"{len(proven)} of {len(names)} controls ran with this very suite and these locks ({path}); "
            f"again: {', '.join(name for name in chosen if name in sample)}"
        )
    return chosen


def _proves(row: ControlRow, locked: control.Locked) -> bool:
    expect = locked.control.expect
    recorded = (row.control_lock, row.twin_lock, tuple(row.expected), row.reason)
    now = (locked.bad.digest, locked.twin.digest, tuple(expect.fails), expect.reason)
    return recorded == now and row.caught and not row.false_alarm


def _run(
    home: Project, controls: Sequence[control.Locked], scratch: Path, jobs: int | None, full: bool
) -> list[ControlResult]:
    """Run the suite on all sides of the controls, several at a time; sides with the same lock are one run."""
    sources.copy(home.smoke, scratch)
    cache = Cache(scratch / "cache")
    sides: dict[str, Side] = {}
    results: dict[str, ControlResult] = {}
    with console.Counting("controls", len(controls)) as work, ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:

        def run(numbered: tuple[int, control.Run]) -> Side:
            number, side_run = numbered
            folder = scratch / f"side-{number}"
            folder.mkdir()
            side = control.run(home, side_run, scratch, folder, work.say, cache)
            shutil.rmtree(folder, ignore_errors=True)
            return side

        for side in pool.map(run, enumerate(control.runs(controls, full=full))):
            sides[side.lock] = side
            for locked in controls:
                if locked.name not in results and {locked.bad.digest, locked.twin.digest} <= sides.keys():
                    result = results[locked.name] = control.result(locked, sides, full=full)
                    work.done(result.name, result.good)
    return [results[locked.name] for locked in controls]


def _print(results: Sequence[ControlResult], summary: control.Summary, advisories: Sequence[Advisory]) -> None:
    console.out.print(console.controls_table(results))
    for line in console.surprises(results, advisories):
        console.out.print(line)
    console.out.print()
    controls = summary["controls"]
    console.out.print(f"sensitivity   {summary['caught']} of {controls} controls caught, for the right reason")
    console.out.print(f"false alarms  {summary['false_alarms']} on {controls} twins")
