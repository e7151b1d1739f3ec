"""Newer versions: outdated, recertify."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from builder import console
from builder.base import machine, project
from builder.base.project import Project
from builder.base.text import word
from builder.certify.certify import Options
from builder.commands.common import (
    AsJson,
    EngineName,
    OneStack,
    Stacks,
    answering_engine,
    changes_json,
    print_json,
    selected,
)
from builder.image import daemon
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.lock import lockfile
from builder.trajectory import comparison, record
from builder.trajectory.verdict import Verdict
from builder.upgrade import compare, outdated, recertify, training
from builder.upgrade.recertification import Progress, Recertification
from builder.upgrade.report import WORDS


def outdated_(stacks: Stacks = None, as_json: AsJson = False) -> None:
    """List newer releases, and whether they fit."""
    home = project.find()
    answer: dict[str, Any] = {}
    for name in selected(home, stacks):
        lock = lockfile.load(home, name)
        with home.holding(f".outdated-{name}") as scratch, console.spinner(f"{name}: asking the index"):
            rows = outdated.of_stack(lock, scratch)
        answer[name] = [{**dataclasses.asdict(row), "allowed": row.allowed} for row in rows]
        if as_json:
            continue
        if not rows:
            console.out.print(f"{name}: nothing is newer than its pins")
            _print_upgrades(home, name)
            continue
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in (name, "locked", "newest", "fits", "in the way"):
            table.add_column(column, overflow="fold")
        for row in rows:
            fits = "the newest" if row.allowed else row.fits if row.fits != row.locked else "nothing newer"
            table.add_row(row.name, row.locked, row.newest, fits, row.why_not)
        console.out.print(table)
        _print_upgrades(home, name)
        if fitting := next((row.name for row in rows if row.fits != row.locked), None):
            console.out.print(f"next: vetted recertify {word(name)} --upgrade {word(fitting)}")
    if as_json:
        print_json(answer)


def recertify_(
    name: OneStack,
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PACKAGE]...", help="More packages, as for --upgrade.", show_default=False),
    ] = None,
    upgrade: Annotated[
        list[str] | None,
        typer.Option(
            help="A package, alone or with ==VERSION, or `all`; may be repeated.",
            show_default="all without a pin in stack.toml",
        ),
    ] = None,
    engine_name: Annotated[EngineName | None, typer.Option("--engine", show_default="docker where one answers")] = None,
    train: Annotated[
        bool, typer.Option("--trajectories", help="Also train the golden trajectories: minutes more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Try an upgrade: lock, build, certify, compare.

    It runs beside the stack, which is replaced only when everything is green.
    """
    home = project.find()
    lock = lockfile.load(home, name)
    chosen = engine_name or answering_engine()
    if chosen == EngineName.docker:
        daemon.docker()  # without a daemon, fail before any work begins
    options = Options(lock.stack.device, chosen)
    machine.hardware(options.device)
    advisories = advisory.load_all(home)
    if train and (reason := training.incomparable(home, name, options)):
        console.note(f"{name}: the training will not be compared: {reason}")
    with home.holding(name) as scratch, console.Working(name) as working:
        progress = Progress(working.step, working.event)
        packages = [*(upgrade or ()), *(more or ())]
        result = recertify.run(home, name, packages, options, advisories, scratch, progress, train=train)
        drawn = comparison.drawn(home, result.training, scratch) if result.training else None
    if as_json:
        print_json({**_json(result), "picture": str(drawn) if drawn else None})
    else:
        _print(home, result, advisories, drawn)
    if result.outcome not in ("green", "nothing"):
        raise typer.Exit(1)


def _json(result: Recertification) -> dict[str, Any]:
    return {
        "stack": result.name, "outcome": result.outcome, "old": result.old.digest,
        "new": result.new.digest if result.new else None,
        "difference": result.difference.words() if result.difference else [],
        "said": result.explanation,
        "findings": [finding.what for finding in result.findings],
        "red": [probe.name for probe in result.red],
        "worse": [str(regression) for regression in result.worse],
        "training": result.training.to_json() if result.training else None,
        "not_trained": result.not_trained or None,
        "culprits": changes_json(result.breaking.culprits) if result.breaking else [],
        "no_culprit": result.no_culprit,
        "reproducer": str(result.reproducer) if result.reproducer else None,
        "advisory": str(result.advisory) if result.advisory else None,
        "report": str(result.report) if result.report else None,
    }  # fmt: skip


def _print(home: Project, result: Recertification, advisories: Sequence[Advisory], drawn: Path | None) -> None:
    out = console.out
    if result.difference:
        for line in result.difference.words():
            out.print(f"  {line}")
        out.print(f"{len(result.difference.rows)} distributions changed, {result.difference.total} to download")
    if result.outcome == "nothing":
        out.print(f"{result.name}: nothing newer fits; the lock stays as it is")
        return
    if result.explanation:
        out.print(result.explanation)
    for finding in result.findings:
        out.print(f"{finding.what}\n  fix: {finding.fix}")
    _print_numbers(result, advisories)
    _print_training(home, result, drawn)
    out.print()
    if result.outcome == "green" and result.new:
        out.print(f"recertified: {result.old.digest} → {result.new.digest}")
        return
    out.print(f"{result.name}: the candidate {WORDS[result.outcome]}; everything stays as it was")
    for culprit in result.breaking.culprits if result.breaking else ():
        out.print(f"  culprit: {culprit}", style="bold")
    if result.no_culprit:
        out.print(f"  culprit not found: {result.no_culprit}")
    if result.report:
        out.print(f"  report: {home.relative(result.report)}")


def _print_upgrades(home: Project, name: str) -> None:
    """Whether the stacks with newer releases train as this one does, where both have golden trajectories."""
    for each in comparison.upgrades(home, name):
        if isinstance(each, str):
            console.out.print(each)
            continue
        with home.holding(f".outdated-{name}") as scratch:
            _print_verdict(home, each, comparison.drawn(home, each, scratch))


def _print_training(home: Project, result: Recertification, drawn: Path | None) -> None:
    if result.training:
        _print_verdict(home, result.training, drawn)
    elif result.not_trained:
        console.out.print(f"the training was not compared: {result.not_trained}")
        console.out.print(f"next time: vetted trajectories {word(result.name)}, before the upgrade")
    elif result.statement and record.of_stack(home, result.name):
        console.out.print("the training was not compared with the golden trajectories: --trajectories does that")


def _print_verdict(home: Project, verdict: Verdict, drawn: Path | None) -> None:
    console.out.print(str(verdict), style=None if verdict.good else "red")
    if drawn:
        console.out.print(f"  picture: {home.relative(drawn)}")


def _print_numbers(result: Recertification, advisories: Sequence[Advisory]) -> None:
    """The results of the suite, if it ran, and how they compare with those of the last certificate."""
    out = console.out
    if result.statement and result.new:
        out.print(console.results_table(result.statement.predicate.probes))
        for text in console.reasons(result.red, result.new.versions, advisories):
            out.print(text)
        if result.before is None:
            out.print("the numbers were not compared: there is no certificate of this device and engine yet")
        elif why := compare.comparable(result.before, result.statement):
            out.print(f"times and memory were not compared: {why}")
    for regression in result.worse:
        out.print(f"worse: {regression}", style="red")
