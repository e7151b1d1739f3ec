"""Golden trajectories: does a stack train as another one does?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, machine, ownership, project
from builder.base.project import Project, write
from builder.base.text import word
from builder.certify.certify import Options
from builder.commands import usage
from builder.commands.common import AsJson, Device, EngineName, answering_engine, print_json, refuse
from builder.image import daemon
from builder.lock import audit, lockfile
from builder.lock.lockfile import Lock
from builder.trajectory import comparison, record, training, verdict
from builder.trajectory import picture as pictures
from builder.trajectory.record import Place, Record
from builder.trajectory.training import Progress, Settings
from builder.trajectory.verdict import Verdict

STEPS = 200
TRAINING = (
    "against", "engine_name", "device", "seeds", "first", "steps", "threads", "force", "output", "picture",
)  # fmt: skip

TrainedStack = Annotated[
    str | None,
    typer.Argument(
        metavar="[STACK]", help="Train in this stack. Default: compare what is recorded.", show_default=False
    ),
]
Against = Annotated[
    str | None,
    typer.Option(metavar="STACK|FILE", help="Judge it against this record.", show_default="the one that it replaces"),
]
Engine = Annotated[EngineName | None, typer.Option("--engine", show_default="docker where one answers")]
OnDevice = Annotated[Device | None, typer.Option(help="Default: the stack's.", show_default=False)]
Seeds = Annotated[int, typer.Option(min=1, max=10_000)]
First = Annotated[int, typer.Option(min=1, max=2**30, help="The first seed.")]
Steps = Annotated[int | None, typer.Option(min=1, max=100_000, show_default=f"{STEPS}, or those of --against")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Threads of each seed's process.")]
Force = Annotated[bool, typer.Option("--force", help="Train even when it is recorded already.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the record there.", show_default="beside the certificates")
]
Picture = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the picture there.", show_default="below .vetted/")
]


def trajectories_(
    context: typer.Context,
    name: TrainedStack = None,
    against: Against = None,
    engine_name: Engine = None,
    device: OnDevice = None,
    seeds: Seeds = 30,
    first: First = 1,
    steps: Steps = None,
    threads: Threads = 1,
    force: Force = False,
    output: Output = None,
    picture: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Train a small task on many seeds. Judge it against a band."""
    home = project.find()
    if name is None:
        usage.refuse(context, TRAINING, "is about the training of one stack: vetted trajectories STACK")
        _print_pairs(home, as_json)
        return
    lock = lockfile.load(home, name)
    if device == Device.cuda and lock.stack.device == "cpu":
        raise typer.BadParameter(f"{name} is a cpu stack: its lock has no CUDA", param_hint="--device")
    options = Options(device or lock.stack.device, engine_name or answering_engine())
    place = Place.model_validate(
        {"device": options.device, "engine": str(options.engine), "threads": threads,
         "hardware": machine.hardware(options.device).hardware_class}
    )  # fmt: skip
    band = comparison.band(home, against, place) if against else None
    settings = Settings(seeds, steps or (band.steps if band else STEPS), threads, first)
    _require_task(home, band, settings)
    where = output or record.path(home, name, place)
    ownership.refuse(where, lambda _: True, "name another file with --output")  # one that is no record ends with 3
    if picture:
        ownership.refuse(picture, pictures.is_one, "name another file with --picture")
    old = _read(home, where)
    with home.holding(name) as scratch:
        if old and not force and _answers(home, old, lock, place, settings):
            new, reused = old, True
        else:
            if band is None and old and (old.task, old.steps) == (record.task(home.smoke), settings.steps):
                band = old
            new, reused = _trained(home, lock, options, settings, scratch), False
            write(where, new.to_json(), scratch)
        judged = verdict.judge(band, new) if band else None
        drawn = comparison.drawn(home, judged, scratch, picture) if judged else None
    if picture and not drawn:
        console.note(f"{picture} is not drawn: there is no other record to compare with; --against names one")
    if as_json:
        print_json(_json(name, where, new, reused, judged, drawn))
    else:
        _print(home, where, new, reused, judged, drawn)
    if judged and not judged.good:
        raise typer.Exit(1)


def _require_task(home: Project, band: Record | None, settings: Settings) -> None:
    """Raise BadInputError for a band that no run of today can be compared with, before any work begins."""
    if band is None:
        record.task(home.smoke)  # is there one?
        return
    record.require_todays(home.smoke, band)
    if band.steps != settings.steps:
        raise errors.BadInputError(
            f"{band.stack} was recorded for {band.steps} steps, not for {settings.steps}",
            next_step=f"the same command with --steps {word(band.steps)}",
        )


def _read(home: Project, where: Path) -> Record | None:
    """The record that is there already."""
    try:
        return record.read(where, home.relative(where))
    except FileNotFoundError:
        return None


def _answers(home: Project, old: Record, lock: Lock, place: Place, settings: Settings) -> bool:
    """Whether a record is what a run would record again."""
    seeds = {seed.seed for seed in old.seeds} | old.failed.keys()
    return (
        old.lock == lock.digest
        and old.task == record.task(home.smoke)
        and old.steps == settings.steps
        and old.place.model_copy(update={"python": ""}) == place
        and seeds == set(range(settings.first, settings.first + settings.seeds))
    )


def _trained(home: Project, lock: Lock, options: Options, settings: Settings, scratch: Path) -> Record:
    """Train; raises VettedError when no seed did."""
    if options.engine == EngineName.docker:
        daemon.docker()  # an engine that does not answer is reported before any work begins
    refuse(lock.name, audit.stale(lock))
    with console.Training(lock.name, settings.seeds) as work:
        new = training.of_stack(home, lock, options, settings, scratch, Progress(work.step, work.seed))
    if not new.seeds:
        raise errors.VettedError(
            f"{lock.name}: no seed trained to the end: {next(iter(new.failed.values()))}",
            cause="the stack does not train",
            next_step=f"vetted certify {word(lock.name)} --engine {word(options.engine)}",
        )
    return new


def _print_pairs(home: Project, as_json: bool) -> None:
    """The verdict on every pair of records."""
    records = comparison.all_records(home)
    verdicts = list(comparison.pairs(records))
    if as_json:
        print_json([{"sentence": each} if isinstance(each, str) else each.to_json() for each in verdicts])
        return
    if len(records) < 2:
        console.out.print(f"{len(records)} records of golden trajectories; a comparison needs two")
        console.out.print("next: vetted trajectories STACK")
    for each in verdicts:
        good = isinstance(each, Verdict) and each.good
        console.out.print(str(each), style=None if good or isinstance(each, str) else "red")


def _json(
    name: str, where: Path, new: Record, reused: bool, judged: Verdict | None, drawn: Path | None
) -> dict[str, Any]:
    return {
        "stack": name, "record": str(where), "reused": reused, "seeds": len(new.seeds), "steps": new.steps,
        "failed": {str(seed): reason for seed, reason in new.failed.items()},
        "place": json.loads(new.place.model_dump_json()),
        "verdict": judged.to_json() if judged else None,
        "picture": str(drawn) if drawn else None,
    }  # fmt: skip


def _print(home: Project, where: Path, new: Record, reused: bool, judged: Verdict | None, drawn: Path | None) -> None:
    out = console.out
    done = "recorded already" if reused else "recorded"
    out.print(f"{new.stack}: {done}: {len(new.seeds)} seeds of {new.steps} steps, {home.relative(where)}")
    for seed, reason in new.failed.items():
        out.print(f"  seed {seed} failed: {reason}", style="red")
    if judged is None:
        out.print(f"next: vetted trajectories {word(new.stack)} --against STACK, or the same again after an upgrade")
        return
    out.print(str(judged), style="bold" if judged.good else "bold red")
    if drawn:
        out.print(f"  picture: {home.relative(drawn)}")
