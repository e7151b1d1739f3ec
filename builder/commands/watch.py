"""Every day: what is new, what may move, what must not: watch."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, machine, project
from builder.base.project import Project
from builder.certify import certificate
from builder.certify.certify import Options
from builder.commands.common import AsJson, EngineName, Stacks, answering_engine, changes_json, print_json, selected
from builder.intent import advisory
from builder.upgrade.recertification import Progress
from builder.upgrade.watch import request, watch
from builder.upgrade.watch.watch import Watched

EXCLUDE = "UV_EXCLUDE_NEWER"  # uv's own: every question to the index obeys it


def watch_(
    stacks: Stacks = None,
    engine_name: Annotated[EngineName | None, typer.Option("--engine", show_default="docker where one answers")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report only: no branch, nothing runs.")] = False,
    open_: Annotated[
        bool, typer.Option("--open", help="Push the branch and open a pull or merge request, by gh or glab.")
    ] = False,
    as_of: Annotated[
        datetime.datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="As it was at the end of that day.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Try again what was tried already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try what is new on a branch, and write a verdict.

    Certificates that are withdrawn or about to expire are reported, too. Exit code 1 when something needs a person.
    """
    home = project.find()
    forge = request.program(home) if open_ and not dry_run else ""  # before hours of work
    names = selected(home, stacks)
    seen = []
    with _as_of(as_of):
        for name in names:
            watched = _watch(home, name, engine_name, as_of, dry_run=dry_run, force=force)
            seen.append(watched)
            if forge and watched.branch:
                watched.request = _open(home, forge, watched)
            if not as_json:
                _print(home, watched)
    if as_json:
        print_json({watched.name: _json(watched) for watched in seen})
    if not all(watched.good for watched in seen):
        raise typer.Exit(1)


@contextmanager
def _as_of(day: datetime.datetime | None) -> Iterator[None]:
    """Let uv see no release of a later day."""
    if day is None:
        yield
        return
    before = os.environ.get(EXCLUDE)
    os.environ[EXCLUDE] = (day + datetime.timedelta(days=1)).strftime("%Y-%m-%dT00:00:00Z")
    try:
        yield
    finally:
        if before is None:
            del os.environ[EXCLUDE]
        else:
            os.environ[EXCLUDE] = before


def _watch(
    home: Project, name: str, engine_name: EngineName | None, as_of: datetime.datetime | None, *, dry_run: bool,
    force: bool,
) -> Watched:  # fmt: skip
    with home.holding(f"watch-{name}") as scratch:
        with console.spinner(f"{name}: asking the index"):
            watched = watch.look(home, name, as_of.date() if as_of else certificate.today(), scratch)
        if dry_run or not watched.fitting:
            return watched
        if home.owns(name):
            watched.untried = "a stack of your own is in no commit of this project: vetted recertify"
            return watched
        device = watched.lock.stack.device
        try:
            machine.hardware(device)
        except errors.MissingToolError as error:
            watched.untried = error.what
            return watched
        options = Options(device, engine_name or answering_engine())
        with console.Working(name) as working:
            progress = Progress(working.step, working.event)
            try:
                watch.attempt(home, watched, options, advisory.load_all(home), scratch, progress, force=force)
            except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
                raise  # it will be the same for every other stack
            except errors.VettedError as error:
                watched.failed = str(error)
    return watched


def _open(home: Project, forge: str, watched: Watched) -> str:
    assert watched.verdict is not None
    with console.spinner(f"{watched.name}: opening a request"):
        return request.open_(home, forge, watched.branch, watched.pushed, watched.subject, watched.verdict)


def _json(watched: Watched) -> dict[str, Any]:
    return {
        "day": str(watched.day), "good": watched.good, "certificates": watched.notices,
        "newer": [{**dataclasses.asdict(pin), "allowed": pin.allowed} for pin in watched.newer],
        "trials": [trial.outcome for trial in watched.trials], "outcome": watched.outcome, "untried": watched.untried,
        "culprits": [changes_json(trial.breaking.culprits) if trial.breaking else [] for trial in watched.trials],
        "training": [trial.training.to_json() if trial.training else None for trial in watched.trials],
        "unchanged_since": watched.unchanged, "branch": watched.branch, "commit": watched.commit,
        "subject": watched.subject, "request": watched.request,
        "failed": watched.failed, "verdict": str(watched.verdict) if watched.verdict else None,
    }  # fmt: skip


def _print(home: Project, watched: Watched) -> None:
    out = console.out
    for notice in watched.notices:
        out.print(f"{watched.name}: {notice}", style="red")
    for pin in watched.newer:
        fits = f"{pin.fits} fits" if pin.fits != pin.locked else f"nothing newer fits: {pin.why_not}"
        out.print(f"{watched.name}: {pin.name} {pin.locked}, newest {pin.newest}: {fits}")
    if not watched.newer:
        out.print(f"{watched.name}: nothing is newer than its pins")
    if watched.untried:
        out.print(f"{watched.name}: not tried: {watched.untried}")
    for trial in watched.trials:
        if trial.training:
            out.print(str(trial.training), style=None if trial.training.good else "red")
    if watched.unchanged:
        out.print(f"{watched.name}: tried on {watched.unchanged} already: {watched.outcome}; --force tries again")
    if watched.branch and watched.verdict:
        out.print(f"{watched.subject}\n  branch {watched.branch}\n  verdict {home.relative(watched.verdict)}")
    if watched.request:
        out.print(f"  {watched.request}")
    if watched.failed:
        console.note(f"{watched.name}: {watched.failed}")
