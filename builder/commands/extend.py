"""Own packages on a stack: extend."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from builder import console
from builder.base import project
from builder.base.project import Project
from builder.base.text import word
from builder.commands import usage
from builder.commands.common import AsJson, OneStack, print_json, refuse
from builder.image import extend
from builder.image.extend import Extension, Request
from builder.intent.extension import DEBIAN_NAME
from builder.lock import audit, lockfile
from builder.lock import requirements as requirements_file
from builder.lock.lockfile import Lock
from builder.pages import generate


def extend_(
    context: typer.Context,
    parent: OneStack,
    requirements: Annotated[
        Path | None, typer.Argument(metavar="[REQUIREMENTS]", help="A requirements file.", show_default=False)
    ] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="The new stack.", show_default=False)] = "",
    debian: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="A Debian package. May be repeated.", show_default=False),
    ] = None,
    allow_old: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE", help="May be far behind its newest release. May be repeated.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add your own packages to a stack as one more layer. Nothing else changes."""
    if not name:
        raise typer.BadParameter("the new stack needs a name", param_hint="--name")
    if requirements is None and not debian:
        raise typer.BadParameter("name a requirements file, or --debian PACKAGE", param_hint="REQUIREMENTS")
    if requirements is None:
        usage.refuse(context, ("allow_old",), "is about a requirements file, and none is named")
    if wrong := [each for each in debian or () if not DEBIAN_NAME.fullmatch(each)]:
        raise typer.BadParameter(f"{wrong[0]!r} is not the name of a Debian package", param_hint="--debian")
    home = project.find()
    base = lockfile.load(home, parent)
    refuse(parent, audit.stale(base))
    extend.refuse_names(home, base, name)
    listed = requirements_file.read(requirements) if requirements else requirements_file.Requirements({})
    allowed = tuple(map(lockfile.normalise, allow_old or ()))
    request = Request(name, listed, tuple(dict.fromkeys(debian or ())), allowed)
    with home.holding(name) as scratch:
        with console.Working(name) as work:
            extension = extend.make(home, base, request, scratch, work.say)
        folder = extend.put(home, extension.lock, scratch)
    if not home.owns(name):
        with home.holding(".documents") as scratch:
            generate.refresh(home, scratch)
    if as_json:
        print_json(_as_json(extension, folder))
        return
    _print(home, base, extension, folder)


def _as_json(extension: Extension, folder: Path) -> dict[str, object]:
    lock = extension.lock
    assert lock.stack.extends is not None
    return {
        "stack": lock.name, "folder": str(folder), "digest": lock.digest,
        "extends": {"stack": lock.stack.extends.stack, "digest": lock.stack.extends.lock},
        "own": {name: lock.versions[name] for name in lock.own.python},
        "source": list(lock.own.source), "debian": list(lock.own.debian),
        "behind": [{"name": each.name, "version": each.version, "newest": each.newest, "far": each.far,
                    "in_the_way": list(each.conflict.pins) if each.conflict else []} for each in extension.behind],
        "left_out": [dataclasses.asdict(each) for each in extension.left_out],
    }  # fmt: skip


def _print(home: Project, base: Lock, extension: Extension, folder: Path) -> None:
    out, lock = console.out, extension.lock
    added = [
        f"{len(names)} {kind}{'s' if len(names) > 1 else ''}"
        for names, kind in ((lock.own.python, "distribution"), (lock.own.debian, "Debian package"))
        if names
    ]
    out.print(f"{lock.name}: {base.name} and {' and '.join(added) or 'nothing more'}, in {home.relative(folder)}/")
    out.print(f"  {lock.digest}")
    direct = [name for name in lock.stack.packages if name in lock.own.python]
    for name in dict.fromkeys((*direct, *lock.own.source)):
        built = ", built from source in the image" if name in lock.own.source else ""
        out.print(f"  {name} {lock.versions[name]}{built}")
    for each in extension.behind:
        out.print(f"  not the newest: {each}")
    for gone in extension.left_out:
        who = f"{' and '.join(gone.required_by)} require{'' if len(gone.required_by) > 1 else 's'}"
        out.print(f"  {who} {gone.name}, which {base.name} leaves out: {gone.reason}")
    out.print(f"next: vetted certify {word(lock.name)}")
