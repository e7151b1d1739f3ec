"""`python -m tests.mutants`: exit status 0 when enough mutants are killed, 1 when not, else as the command `vetted`."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from builder import console
from builder.base import errors, machine, project
from builder.base.project import Project
from builder.certify import hostenv, suite, transcript
from builder.lock import audit, lockfile
from builder.trajectory import record
from tests.mutants import hunt, mutant
from tests.mutants.hunt import Verdict
from tests.mutants.mutant import Mutant, Placed

ENOUGH = 0.9  # the share of mutants that the suite must kill
STACK = "trl1.16-cpu"
LIST = "tests/mutants.toml"
# What one run of the suite may need; fewer run at a time where there is less memory.
MEMORY_MIB = 8192

STYLES = {"killed": "green", "survived": "red"}

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False, rich_markup_mode=None)


class Terminal:
    """One line for each mutant under way, and one for each that is done."""

    def __init__(self, quiet: bool) -> None:
        self._out = console.err if quiet else console.out
        self._quiet = quiet and not console.err.is_terminal
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[name]}"),
            TextColumn("{task.description}", style="dim"),
            TimeElapsedColumn(),
            console=console.err,
            transient=True,
            disable=not console.err.is_terminal,
        )
        self._lock = threading.Lock()
        self._tasks: dict[str, Any] = {}

    def started(self, name: str) -> None:
        with self._lock:
            self._tasks[name] = self.progress.add_task("making the environment", total=None, name=name)

    def event(self, name: str, event: transcript.Event) -> None:
        doing = {"start": "importing the stack", "begin": event.get("probe")}.get(event["event"])
        if doing:
            self.progress.update(self._tasks[name], description=str(doing))

    def finished(self, name: str, verdict: Verdict | None, remembered: bool) -> None:
        with self._lock:
            if name in self._tasks:
                self.progress.remove_task(self._tasks.pop(name))
        if verdict is not None and not self._quiet:
            when = "earlier" if remembered else f"{verdict.seconds:.0f} s"
            by = f" by {verdict.by}" if verdict.by else ""
            self._out.print(Text.assemble((f"{verdict.outcome:<8}", STYLES[verdict.outcome]), f" {name}{by} ({when})"))


@app.command()
def mutants(
    file: Annotated[Path | None, typer.Option(help="The list of mutants.", show_default=LIST)] = None,
    only: Annotated[list[str] | None, typer.Option(help="Only this mutant; may be repeated.", metavar="ID")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many at a time.", show_default="as cores and memory allow")
    ] = None,
    stack: Annotated[str, typer.Option(help="The stack to change, a folder in lockfiles/.")] = STACK,
    golden: Annotated[
        Path | None,
        typer.Option("--trajectories", help="Judge survivors by this record of `vetted trajectories`, made here."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write the evidence to this file, as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
) -> None:
    """Run the suite against libraries that were each made a little wrong, and count what it notices.

    A run that was interrupted goes on where it was: what is known of a mutant under the same suite and lock is kept.
    """
    home = project.find()
    path = file if file is not None else home.root / LIST
    where = home.relative(path.absolute())
    listed = mutant.load(path, where)
    chosen = _chosen(listed, only or [], where)
    band = record.read(golden, str(golden)) if golden else None
    lock = lockfile.load(home, stack)
    if findings := audit.stale(lock):
        raise errors.VettedError(f"{stack}: {findings[0].what}", next_step=findings[0].fix)
    with home.holding("mutants") as scratch:
        terminal = Terminal(as_json)
        with console.spinner(f"{stack}: preparing the environment"):
            hunting = hunt.Hunt(home, lock, scratch, terminal, band)
            with home.holding(stack) as making:
                hunting.adopt(hostenv.prepare(home, lock, making, lambda _: None))
            placed = mutant.place(chosen, hunting.site_packages, lock.versions, where)
        with terminal.progress:
            baseline = hunting.baseline()
            verdicts = hunting.run(placed, baseline, jobs or _jobs())
        measured = hunt.evidence(
            placed=placed,
            verdicts=verdicts,
            baseline=baseline,
            date=datetime.now(UTC).date().isoformat(),
            suite=hunting.suite,
            machine=machine.hardware(lock.stack.device).hardware_class,
            command=_command(home),
            stack=stack,
            lock=lock.digest,
            list={"file": where, "digest": project.sha256_file(path)},
            equivalent=[entry.id for entry in listed if entry.equivalent],
        )
        if output is not None:
            project.write(output, json.dumps(measured, indent=1, ensure_ascii=False) + "\n", scratch)
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        _print(placed, verdicts, measured)
    if measured["total"]["rate"] < ENOUGH:
        raise typer.Exit(1)


def _chosen(listed: Sequence[Mutant], only: Sequence[str], where: str) -> list[Mutant]:
    if missing := [name for name in only if name not in {entry.id for entry in listed}]:
        raise errors.BadInputError(
            f"{where} has no mutant {', '.join(missing)}", next_step=f"grep '^id' {shlex.quote(where)}"
        )
    chosen = [entry for entry in listed if (entry.id in only if only else not entry.equivalent)]
    if not chosen:
        raise errors.BadInputError(f"{where} has no mutant that is not equivalent", next_step=f"add one to {where}")
    return chosen


def _jobs() -> int:
    return max(1, min(len(os.sched_getaffinity(0)), suite.memory_mib() // MEMORY_MIB))


def _command(home: Project) -> str:
    arguments = [argument.replace(f"{home.root}/", "") for argument in sys.argv[1:]]
    return shlex.join(["./nox", "-s", "mutants", *(["--", *arguments] if arguments else [])])


def _print(placed: Sequence[Placed], verdicts: Mapping[str, Verdict], measured: Mapping[str, Any]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("package")
    for column in ("mutants", "killed", "rate"):
        table.add_column(column, justify="right")
    for name, row in (*measured["packages"].items(), ("total", measured["total"])):
        table.add_row(name, str(row["mutants"]), str(row["killed"]), f"{row['rate']:.0%}")
    console.out.print()
    console.out.print(table)
    for entry in placed:
        if verdicts[entry.mutant.id].outcome == "survived":
            reason = entry.mutant.survives or " ".join(entry.mutant.why.split())
            console.out.print(Text.assemble(("survived ", "red"), (entry.mutant.id, "bold"), f": {reason}"))
    console.out.print(f"\n{measured['total']['rate']:.1%} killed, {ENOUGH:.0%} asked; suite {measured['suite']}")


def main() -> None:
    """Run the command; an error says what happened, and sets the exit status."""
    try:
        app(prog_name="python -m tests.mutants")
    except errors.VettedError as error:
        _fail(error)
    except OSError as error:
        _fail(errors.from_os(error))


def _fail(error: errors.VettedError) -> None:
    console.note(f"mutants: {error}")
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
