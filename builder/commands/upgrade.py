"""Moving on: outdated, recertify."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.table import Table

from builder import console, lock, outdated, project
from builder.commands.common import AsJson, Stacks, print_json, selected


def outdated_(stacks: Stacks = None, as_json: AsJson = False) -> None:
    """What is newer than each stack's pins, and whether the ranges that the others declare let it in."""
    home = project.find()
    answer: dict[str, Any] = {}
    for name in selected(home, stacks):
        held = lock.load(home, name)
        with home.holding(f"outdated-{name}") as scratch, console.spinner(f"{name}: asking the index"):
            rows = outdated.of_stack(held, scratch)
        answer[name] = [{**dataclasses.asdict(row), "allowed": row.allowed} for row in rows]
        if as_json:
            continue
        if not rows:
            console.out.print(f"{name}: nothing is newer than its pins")
            continue
        table = Table(box=None, header_style="bold", pad_edge=False)
        for column in (name, "locked", "newest", "fits", "in the way"):
            table.add_column(column, overflow="fold")
        for row in rows:
            fits = "the newest" if row.allowed else row.fits if row.fits != row.locked else "nothing newer"
            table.add_row(row.name, row.locked, row.newest, fits, row.why_not)
        console.out.print(table)
        if fitting := next((row.name for row in rows if row.fits != row.locked), None):
            console.out.print(f"next: vetted recertify {name} --upgrade {fitting}")
    if as_json:
        print_json(answer)
