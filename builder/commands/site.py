"""From certificates to pages that anyone can read: site."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import project, quantities
from builder.base.text import word
from builder.commands import remote
from builder.commands.common import AsJson, print_json
from builder.site import history, site
from builder.site.page import REGISTRY


def site_(
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder; an earlier site there is replaced.", show_default=False)
    ],
    registry: Annotated[
        str | None,
        typer.Option(metavar="HOST/PATH", help="Where the images are, for the commands.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make static pages of all certificates and evidence."""
    home = project.find()
    where = str(remote.repository(registry, insecure=False)) if registry is not None else REGISTRY
    site.complete()
    site.replaceable(output)
    with home.holding(".site") as scratch, console.Working("site") as work:
        content = site.read(home, scratch, work.say, where)
        result = site.make(content, output, work.say)
    if history.is_shallow(home.root):
        console.note(
            "this clone lacks older commits, so the page may lack earlier certificates\n"
            "next: git fetch --unshallow; in GitHub's checkout action, fetch-depth: 0"
        )
    if as_json:
        print_json({**dataclasses.asdict(result), "output": str(result.output)})
        return
    states = ", ".join(f"{count} {state}" for state, count in result.states.items() if count)
    console.out.print(f"{output}: {result.pages} pages; certificates: {states or 'none'}")
    console.out.print(f"  the largest page loads {quantities.size(result.largest_bytes)}: {result.largest}")
    console.out.print(f"  next: python3 -m http.server --directory {word(output)}")
