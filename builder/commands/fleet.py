"""Many stacks on many machines: fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import machine, project, text
from builder.base.project import Project
from builder.commands.common import AsJson, EngineName, answering_engine, print_json, refuse, selected
from builder.fleet import collect, plan, slurm, unit
from builder.fleet.collect import Collected
from builder.fleet.slurm import Limits
from builder.fleet.unit import Outcome, Unit
from builder.lock import audit, lockfile
from builder.pages import generate


class Place(StrEnum):
    local = "local"
    slurm = "slurm"


def fleet_(
    stacks: Annotated[list[str], typer.Argument(metavar="STACK...", help="The stacks.", show_default=False)],
    place: Annotated[Place, typer.Option("--on", help="local: one after the other, here.", show_default=False)],
    kinds: Annotated[
        str,
        typer.Option(
            "--gpus", metavar="KIND:N,…", help="GPUs of CUDA stacks, as the scheduler calls them: h200:2,a100:1"
        ),
    ] = "",
    engine_name: Annotated[
        EngineName, typer.Option("--engine", help="How the suite runs on a node.")
    ] = EngineName.host,
    partition: Annotated[str, typer.Option(help="Slurm's partition.", show_default="Slurm's own")] = "",
    cpus: Annotated[int, typer.Option(min=1, help="Cores of each job.")] = 2,
    minutes: Annotated[int, typer.Option(min=0, help="Time limit.", show_default="as measured")] = 0,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Statements. Default: .vetted/fleet.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Certify many stacks: one stack in, one statement out.

    Slurm queues and requeues; this command may be interrupted and run again, and takes up what runs.
    """
    home = project.find()
    try:
        named = plan.gpus(kinds) if kinds else []
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from error
    engine = answering_engine() if place is Place.local and engine_name is EngineName.docker else engine_name
    units = plan.units(home, selected(home, stacks), named if place is Place.slurm else [("", 0)], engine)
    for each in units:
        lock = lockfile.load(home, each.stack)
        refuse(each.stack, audit.stale(lock))
        if place is Place.local:
            machine.hardware(lock.stack.device)  # before any work begins
    folder = home.state / "fleet"
    target = output or folder / "statements"
    done = []
    with home.holding("fleet") as scratch, console.spinner("fleet") as _:
        for outcome in _outcomes(home, units, place, Limits(partition, cpus, minutes), folder, scratch):
            alone = [each.stack for each in units].count(outcome.unit.stack) == 1
            done.append(collect.collect(home, outcome, target, scratch, place=alone))
            if place is Place.slurm:
                slurm.collected(home, outcome.unit, folder, scratch)
            if not as_json:
                _print(home, done[-1])
    if any(each.placed for each in done):
        with home.holding("documents") as scratch:
            generate.refresh(home, scratch)
    if as_json:
        print_json([_json(each) for each in done])
    else:
        good = sum(each.good for each in done)
        console.out.print(f"{good} of {len(units)} certified; statements in {home.relative(target)}")
    if not all(each.good for each in done):
        raise typer.Exit(1)


def _outcomes(
    home: Project, units: Sequence[Unit], place: Place, limits: Limits, folder: Path, scratch: Path
) -> Iterator[Outcome]:
    if place is Place.local:
        for each in units:
            console.note(f"{each.name}: running")
            yield unit.run(str(home.root), each, str(home.state))
        return
    jobs = slurm.submit(home, units, limits, folder, scratch)
    for each, job in jobs.items():
        console.note(f"{each.name}: job {job.job_id}")
    yield from slurm.outcomes(jobs, _quiet())


def _quiet() -> Callable[[str], None]:
    """Reports the states of the jobs when they change."""
    last = [""]

    def say(states: str) -> None:
        if states and states != last[0]:
            console.note(states)
            last[0] = states

    return say


def _print(home: Project, each: Collected) -> None:
    outcome = each.outcome
    where = f"on {outcome.node}, {outcome.seconds:.0f} s" if outcome.node else ""
    state = "certified" if each.good else "not certified"
    console.out.print(f"{outcome.unit.name}: {state} {where}".rstrip(), style="green" if each.good else "red")
    for doubt in each.doubts:
        console.out.print(f"  {text.line(doubt.splitlines()[0] if doubt else '')}")
    if each.file:
        console.out.print(f"  {home.relative(each.file)}")


def _json(each: Collected) -> dict[str, object]:
    outcome = each.outcome
    return {
        "unit": outcome.unit.name, "stack": outcome.unit.stack, "gpu": outcome.unit.gpu, "gpus": outcome.unit.gpus,
        "node": outcome.node, "seconds": outcome.seconds, "good": each.good, "doubts": list(each.doubts),
        "statement": str(each.file) if each.file else None,
    }  # fmt: skip
