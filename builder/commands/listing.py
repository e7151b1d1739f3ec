"""The stacks of a project: list."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated

import typer

from builder import console
from builder.base import errors, project, text
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate, standing
from builder.certify.assessment import Assessments
from builder.commands.common import AsJson, print_json
from builder.intent import stack
from builder.lock import gpus as known
from builder.lock import lockfile
from builder.pages import gpus, matrix

SHOWN = 10  # places of a stack in the list


def list_(
    by_gpu: Annotated[bool, typer.Option("--gpus", help="Show which GPU runs which stack instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List stacks, their versions, and where they are certified."""
    home = project.find()
    if by_gpu:
        _print_gpus(gpus.rows(home), as_json)
        return
    rows: list[Row] = []
    damaged: dict[str, errors.BadInputError] = {}
    with console.Working("certificates") as work:
        assessments = Assessments(home, work.say)
        for name in stack.names(home):
            try:
                rows.append(_row(home, name, assessments))
            except errors.BadInputError as error:
                damaged[name] = error
    if not as_json:
        _print(rows, damaged)
        for other in list(damaged.values())[1:]:
            console.note(f"vetted: {other}\n")
    if damaged:
        raise next(iter(damaged.values()))
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])


def _print(rows: Iterable[Row], damaged: Iterable[str]) -> None:
    table = console.plain("stack", *matrix.COLUMNS, "certified on")
    for row in rows:
        places = [text.line(place) for place in row.certified_on[:SHOWN]] or ["not certified"]
        if len(row.certified_on) > SHOWN:
            places.append(f"and {len(row.certified_on) - SHOWN} more: vetted show {word(row.stack)}")
        places += [text.line(place) for place in row.earlier_on[:SHOWN]]
        places += [f"{platform}: {state}" for platform, state in row.other_platforms.items()]
        table.add_row(row.stack, *row.versions.values(), "\n".join(places))
    for name in damaged:
        table.add_row(name, *["?"] * len(matrix.COLUMNS), "cannot be read: see below")
    console.out.print(table)


def _row(home: Project, name: str, assessments: Assessments) -> Row:
    lock = lockfile.load(home, name)
    places = standing.certified_on(home, lock, certificate.today(), assessments)
    earlier = standing.earlier_on(home, lock, assessments)
    return Row(name, lock.stack.device, matrix.versions(lock), places, earlier, matrix.other_platforms(home, name))


def _print_gpus(rows: dict[str, dict[str, str]], as_json: bool) -> None:
    if as_json:
        print_json(rows)
        return
    table = console.plain("GPU", "capability", *rows)
    for gpu in known.GPUS:
        table.add_row(gpu.title, gpu.number, *(lines[gpu.title] for lines in rows.values()))
    console.out.print(table)
    console.out.print("read from the kernels in the locked files; only what says certified was run on such a GPU")


@dataclasses.dataclass(frozen=True)
class Row:
    """A stack in the list."""

    stack: str
    device: str
    versions: dict[str, str]
    certified_on: list[str]
    earlier_on: list[str]
    other_platforms: dict[str, str]
