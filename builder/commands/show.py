"""The certificates of a stack: show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import project, text
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate, judgement
from builder.certify.assessment import Assessments
from builder.certify.certificate import Resource, Statement
from builder.commands import usage
from builder.commands.common import AsJson, OneStack, print_json
from builder.lock import lockfile
from builder.lock.lockfile import Lock

WIDE = 400  # characters of a certificate that are shown in one line
WHOLE = 5  # certificates of a stack that are shown with all numbers; of more, each has a line


class Engine(StrEnum):
    """What a certificate can be earned with."""

    docker = "docker"
    host = "host"
    chroot = "chroot"
    kubernetes = "kubernetes"


def show_(
    context: typer.Context,
    name: OneStack,
    engine_name: Annotated[Engine | None, typer.Option("--engine", show_default="all")] = None,
    only: Annotated[
        str | None,
        typer.Option("--certificate", metavar="NAME", help="Only this one, such as cpu-docker.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the certificates of a stack."""
    if only is not None:
        usage.refuse(context, ("engine_name",), "does not go with --certificate, which names one already")
    home = project.find()
    lock = lockfile.load(home, name)
    files = {
        file.stem: file
        for file in certificate.files(home, name)
        if (engine_name is None or file.stem.endswith(f"-{engine_name}")) and only in (None, file.stem)
    }
    if as_json:
        print_json({stem: json.loads(statement.to_json()) for stem, statement in _read(home, files).items()})
    elif not files:
        if only is not None:
            there = [file.stem for file in certificate.files(home, name)]
            console.out.print(f"{name} has no certificate {text.line(only, WIDE)}{usage.nearest(only, there)}")
        else:
            console.out.print(f"{name} is not certified")
        console.out.print(f"next: vetted {'show' if only is not None else 'certify'} {word(name)}")
    elif len(files) > WHOLE:
        _print_lines(home, lock, files)
    else:
        terms = judgement.terms(home, lock)
        for statement in _read(home, files).values():
            _print(lock, statement, judgement.doubts(statement, terms))
    if not files:
        raise typer.Exit(1)


def _read(home: Project, files: Mapping[str, Path]) -> dict[str, Statement]:
    return {stem: certificate.read_of_stack(home, file) for stem, file in files.items()}


def _print_lines(home: Project, lock: Lock, files: Mapping[str, Path]) -> None:
    """A line for each certificate."""
    with console.Working(lock.name) as work:
        assessments = Assessments(home, work.say)
        certificates, others = assessments.readable(lock)
    day = assessments.terms(lock).day
    console.out.print(text.line(lock.stack.title), style="bold")
    damaged = [path.stem for path in others if path.stem in files]
    listed = [assessment for assessment in certificates if assessment.name in files]
    for name in damaged:
        console.out.print(f"  {text.line(name, WIDE)}: not a certificate of this stack", style="yellow")
    for assessment in listed:
        doubts = assessment.doubts(day)
        state = text.line(doubts[0].partition("\n")[0], WIDE) if doubts else "holds"
        place = f"{text.line(assessment.hardware, WIDE)} ({assessment.about})"
        dates = f"issued {assessment.issued}, expires {assessment.expires}"
        console.out.print(
            f"  {text.line(assessment.name, WIDE)}: {place}, {dates}: {state}",
            style="yellow" if doubts else "",
        )
    first = damaged[0] if damaged else listed[0].name
    console.out.print(f"next: vetted show {word(lock.name)} --certificate {word(first)}")
    if damaged:
        raise typer.Exit(1)


def _print(lock: Lock, statement: Statement, doubts: Sequence[str]) -> None:
    console.out.print(text.line(lock.stack.title), style="bold")
    for subject in statement.subject:
        digest = f"sha256:{subject.digest.sha256 if subject.digest else ''}"
        console.out.print(f"  subject   {text.line(subject.name, WIDE)}\n            {digest}")
    for resource in statement.predicate.configuration:
        console.out.print(f"  {text.line(resource.name, WIDE):<9} {text.line(_value(resource), WIDE)}")
    predicate = statement.predicate
    if predicate.issued:
        console.out.print(f"  {'issued':<9} {predicate.issued}, expires {predicate.expires}")
    for doubt in doubts:
        console.out.print(f"  not valid: {doubt}", style="yellow")
    if not doubts:
        console.out.print("  valid     for today's lock, suite and advisories")
    console.out.print(console.results_table(predicate.probes))
    for name, reason in predicate.notRun.items():
        console.out.print(text.line(f"not run: {name}: {reason}", WIDE))
    console.out.print()


def _value(resource: Resource) -> str:
    """A resource's digest; without one, its name and annotations."""
    if resource.digest:
        return f"sha256:{resource.digest.sha256}"
    annotations = dict(resource.annotations or {})
    name = str(annotations.pop("name", ""))
    annotations.pop("class", None)
    return " ".join(filter(None, (name, ", ".join(f"{key} {value}" for key, value in annotations.items()))))
