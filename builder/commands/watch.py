"""Every day: what is new, what may move, what must not: watch."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from builder import console
from builder.base import errors, machine, ownership, project
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate
from builder.certify.certify import Options
from builder.commands.common import AsJson, EngineName, Stacks, answering_engine, changes_json, print_json, selected
from builder.intent import advisory
from builder.lock import osv
from builder.publish import purls
from builder.upgrade import mainline
from builder.upgrade.mainline import Mainline, Source
from builder.upgrade.recertification import Progress
from builder.upgrade.watch import exposure, request, verdict, vex, watch
from builder.upgrade.watch.exposure import Exposure
from builder.upgrade.watch.watch import Watched

FIRST = datetime.date(2020, 1, 1)  # no package of a stack is older
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
    osv_: Annotated[
        Path | None,
        typer.Option("--osv", metavar="DIR", help="Match an export of OSV, too.", show_default=False),
    ] = None,
    vex_: Annotated[
        Path | None,
        typer.Option("--vex", metavar="FILE", help="With --osv: read and keep OpenVEX statements.", show_default=False),
    ] = None,
    main: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE=GIT", help="Try the main branch of a package, too.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Try again what was tried already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try what is new on a branch, and write a verdict.

    Certificates that are withdrawn or about to expire are reported, too. Exit code 1 when something needs a person.
    """
    home = project.find()
    if vex_:
        _check(vex_, osv_)
    _refuse_day(as_of)
    branches = [mainline.parse(text) for text in main or ()]
    forge, not_opened = _forge(home, dry_run=dry_run) if open_ else ("", None)  # before hours of work
    names = selected(home, stacks)
    if not_opened and not as_json:
        console.out.print(f"--open would fail: {not_opened.what}\nnext: {not_opened.next_step}", style="red")
    with _as_of(as_of):
        seen = [_look(home, name, as_of, quiet=as_json) for name in names]
        if osv_:
            _expose(home, seen, osv_, vex_)
        for watched in seen:
            if not dry_run:
                _attempt(home, watched, engine_name, branches, force=force)
            if forge and watched.branch:
                watched.request = _open(home, forge, watched)
            if not as_json:
                _print(home, watched)
    if as_json:
        missing = not_opened.what if not_opened else ""
        print_json({watched.name: _json(watched) | {"not_opened": missing} for watched in seen})
    if not all(watched.good for watched in seen):
        raise typer.Exit(1)


def _check(file: Path, folder: Path | None) -> None:
    """What can be said of the file of statements before any work begins."""
    if not folder:
        raise typer.BadParameter("it needs --osv", param_hint="--vex")
    ownership.refuse(file, lambda _: True, "name the file itself with --vex")


def _refuse_day(day: datetime.datetime | None) -> None:
    """Refuse a day whose index nobody knows."""
    if day and not FIRST <= day.date() <= certificate.today():
        raise typer.BadParameter(f"a day from {FIRST} to today", param_hint="--as-of")


def _forge(home: Project, *, dry_run: bool) -> tuple[str, errors.VettedError | None]:
    """The program that opens requests. A dry run opens none, and gets the error that there would be."""
    try:
        program = request.program(home)
        return "" if dry_run else program, None
    except errors.VettedError as error:
        if not dry_run:
            raise
        return "", error


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


def _look(home: Project, name: str, as_of: datetime.datetime | None, *, quiet: bool) -> Watched:
    """Look at a stack, and say at once what is new: it takes most of a minute, and there may be others."""
    with home.holding(f".watch-{name}") as scratch, console.spinner(f"{name}: asking the index and the mirror"):
        watched = watch.look(home, name, as_of.date() if as_of else certificate.today(), scratch)
    if not quiet:
        _print_new(watched)
    return watched


def _expose(home: Project, seen: Sequence[Watched], folder: Path, file: Path | None) -> None:
    """Match an export of OSV, and bring the file of statements up to date."""
    document = vex.read(file) if file else None
    with console.spinner(f"reading {folder}"):
        things = {watched.name: exposure.installed(watched.lock, watched.renewal) for watched in seen}
        matches, records = osv.matches(folder, dict.fromkeys(thing for own in things.values() for thing in own))
    for watched in seen:
        watched.records = records
        with home.holding(f".watch-{watched.name}") as scratch, console.spinner(f"{watched.name}: what fits"):
            exposures = exposure.of(watched.lock, things[watched.name], matches, watched.renewal, scratch)
        watched.exposures = vex.judged(document, exposures) if document else exposures
    if document and file:
        inspected = {purl for watched in seen for purl in purls.of(watched.lock).values()}
        exposures = [each for watched in seen for each in watched.exposures]
        updated = vex.updated(document, exposures, inspected, certificate.today())
        if updated is not document:
            with home.holding(".vex") as scratch:
                project.write(file, vex.to_json(updated), scratch)


def _attempt(
    home: Project, watched: Watched, engine_name: EngineName | None, branches: Sequence[Source], *, force: bool
) -> None:
    """Try what fits on a branch of this project, and the main branches of packages."""
    if home.owns(watched.name) and watched.fitting:
        watched.untried = "a stack of your own is in no commit of this project: vetted recertify"
    fitting = bool(watched.fitting) and not watched.untried
    if not fitting and not branches:
        return
    device = watched.lock.stack.device
    try:
        machine.hardware(device)
    except errors.MissingToolError as error:
        watched.untried = error.what
        return
    options = Options(device, engine_name or answering_engine())
    with home.holding(f".watch-{watched.name}") as scratch, console.Working(watched.name) as working:
        progress = Progress(working.step, working.event)
        try:
            if fitting:
                watch.attempt(home, watched, options, advisory.load_all(home), scratch, progress, force=force)
            for number, source in enumerate(branches):
                (own := scratch / f"main-{number}").mkdir()
                watched.main.append(mainline.run(home, watched.lock, source, options, own, progress))
        except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
            raise  # it will be the same for every other stack
        except errors.VettedError as error:
            watched.failed = str(error)


def _open(home: Project, forge: str, watched: Watched) -> str:
    assert watched.verdict is not None
    with console.spinner(f"{watched.name}: opening a request"):
        return request.open_(home, forge, watched.branch, watched.pushed, watched.subject, watched.verdict)


def _json(watched: Watched) -> dict[str, Any]:
    return {
        "day": str(watched.day), "good": watched.good, "certificates": watched.notices,
        "not_comparable": watched.untrained,
        "newer": [{**dataclasses.asdict(pin), "allowed": pin.allowed} for pin in watched.newer],
        "debian": {
            "fixes": [dataclasses.asdict(fix) for fix in watched.renewal.fixes] if watched.renewal else None,
            "note": watched.renewal.note if watched.renewal else watched.not_renewed,
        },
        "osv": {"records": watched.records, "matches": list(map(_exposure_json, watched.exposures))},
        "trials": [trial.outcome for trial in watched.trials], "outcome": watched.outcome, "untried": watched.untried,
        "culprits": [changes_json(trial.breaking.culprits) if trial.breaking else [] for trial in watched.trials],
        "training": [trial.training.to_json() if trial.training else None for trial in watched.trials],
        "main": [_main_json(each) for each in watched.main],
        "unchanged_since": watched.unchanged, "branch": watched.branch, "commit": watched.commit,
        "subject": watched.subject, "request": watched.request,
        "failed": watched.failed, "verdict": str(watched.verdict) if watched.verdict else None,
    }  # fmt: skip


def _main_json(each: Mainline) -> dict[str, Any]:
    return {
        "package": each.package, "commit": each.head, "version": each.version, "outcome": each.outcome,
        "red": [probe.name for probe in each.red], "explanation": each.explanation, "good": each.good,
        "suspects": each.suspects, "no_culprit": each.no_culprit, "commits_tried": each.trials, "sentence": str(each),
    }  # fmt: skip


def _exposure_json(exposure: Exposure) -> dict[str, Any]:
    match = exposure.match
    return {
        "names": match.names, "summary": match.summary, "ecosystem": match.installed.ecosystem,
        "package": match.installed.name, "version": match.installed.version, "purls": exposure.purls,
        "affected": match.affected, "fixed": match.fixed, "fits": exposure.fits, "fit": exposure.fit,
        "vex": exposure.judged,
    }  # fmt: skip


def _print(home: Project, watched: Watched) -> None:
    _print_known(watched)
    _print_trials(watched)
    if watched.branch and watched.verdict:
        where = home.relative(watched.verdict)
        console.out.print(f"{watched.subject}\n  branch {watched.branch}\n  verdict {where}")
    if watched.request:
        console.out.print(f"  {watched.request}")
    if watched.failed:
        console.note(f"{watched.name}: {watched.failed}")


def _print_new(watched: Watched) -> None:
    """What needs a person, and what is newer than the pins."""
    out = console.out
    for notice in watched.notices:
        out.print(f"{watched.name}: {notice}", style="red")
    for reason in watched.untrained:
        out.print(f"{watched.name}: the training will not be compared: {reason}")
    for pin in watched.newer:
        fits = f"{pin.fits} fits" if pin.fits != pin.locked else f"nothing newer fits: {pin.why_not}"
        fits += f"; in the way of {pin.newest}: {pin.why_not}" if pin.fits not in (pin.locked, pin.newest) else ""
        out.print(f"{watched.name}: {pin.name} {pin.locked}, newest {pin.newest}: {fits}")
    if not watched.newer:
        out.print(f"{watched.name}: nothing is newer than its pins")


def _print_trials(watched: Watched) -> None:
    """What was tried, and what came of it."""
    out = console.out
    if watched.untried:
        out.print(f"{watched.name}: not tried: {watched.untried}")
    for trial in watched.trials:
        if trial.training:
            out.print(str(trial.training), style=None if trial.training.good else "red")
    for each in watched.main:
        out.print(f"{watched.name}: {each}", style="red" if each.outcome == "red" else None)
    if watched.unchanged:
        out.print(f"{watched.name}: tried on {watched.unchanged} already: {watched.outcome}; --force tries again")


def _print_known(watched: Watched) -> None:
    """What is known of vulnerabilities: by Debian's changelogs, and by an export of OSV."""
    out = console.out
    if watched.renewal is None:
        out.print(f"{watched.name}: Debian's packages were not compared with the mirror: {watched.not_renewed}")
    else:
        for line in verdict.renewed(watched.renewal) or ["the mirror has no newer Debian packages"]:
            out.print(f"{watched.name}: {line}")
        if watched.renewal.fixing:
            out.print(f"next: vetted recertify {word(watched.name)} --upgrade debian")
    for line in exposure.lines(watched.exposures, watched.records) if watched.records else ():
        out.print(f"{watched.name}: {line}")
