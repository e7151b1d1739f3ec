"""From locks to what is generated of them: render."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from builder import console
from builder.base import project
from builder.base.project import Project
from builder.commands.common import AsJson, Stacks, print_json, selected
from builder.image import render
from builder.lock import lockfile
from builder.pages import generate


def render_(
    stacks: Stacks = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing. Exit 1 with a diff when a file is stale.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Render Dockerfiles from locks, and tables in documents."""
    home = project.find()
    differences = _dockerfiles(home, selected(home, stacks), check=check)
    if not stacks:
        with home.holding(".documents") as scratch:
            changed = generate.stale(home) if check else generate.refresh(home, scratch)
        differences.update({home.relative(path): "is stale\n" for path in changed})
    if as_json:
        print_json({"changed": differences})
    else:
        _print_rendered(differences, check=check)
    if check and differences:
        console.note("next: vetted render")
        raise typer.Exit(1)


def _dockerfiles(home: Project, names: Sequence[str], *, check: bool) -> dict[str, str]:
    """The Dockerfiles that are stale, each with its difference; written unless they are only checked."""
    differences: dict[str, str] = {}
    for name in names:
        with home.holding(name) as scratch:
            for lock in lockfile.load_all(home, name):
                if difference := render.difference(home, lock):
                    path = render.path_of(home, lock)
                    differences[home.relative(path)] = difference
                    if not check:
                        project.write(path, render.dockerfile(home, lock), scratch)
    return differences


def _print_rendered(differences: Mapping[str, str], *, check: bool) -> None:
    if not differences:
        console.out.print("everything rendered is up to date")
    for where, difference in differences.items():
        if check:
            console.verbatim(difference if difference.startswith("---") else f"{where} {difference}")
        else:
            console.out.print(f"rendered {where}")
