"""An extension of a stack: what is asked for, resolved beside the parent, checked, and written as a stack."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement

from builder.base import errors, pins, project, text
from builder.base.project import Project
from builder.base.text import word
from builder.image import own, render
from builder.intent import stack as stacks
from builder.intent import values, written
from builder.intent.extension import Extends
from builder.intent.stack import Stack
from builder.lock import antique, archives, commit, extension, kernels, leftout, lockfile, resolve
from builder.lock.antique import Behind
from builder.lock.leftout import LeftOut
from builder.lock.lockfile import Lock
from builder.lock.requirements import Requirements

SHOWN = 3  # own packages in a title


@dataclass(frozen=True)
class Request:
    """What somebody asks for: the name of the new stack, requirements, Debian packages, and what may be old."""

    name: str
    requirements: Requirements
    debian: tuple[str, ...] = ()
    allow_old: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extension:
    """The lock of an extension, what of it is not the newest, and what it requires that its parent leaves out."""

    lock: Lock
    behind: list[Behind]
    left_out: list[LeftOut]


def refuse_names(home: Project, base: Lock, name: str) -> None:
    """Raise BadInputError for a parent that is an extension, and a name that is another stack's."""
    if base.stack.extends:
        raise errors.BadInputError(
            f"{base.name} is an extension itself, of {base.stack.extends.stack}",
            next_step=f"vetted extend {word(base.stack.extends.stack)} with the requirements of both",
        )
    if not values.NAME.fullmatch(name):
        raise errors.BadInputError(
            f"{text.line(name, 60)!r} is not a stack's name: lower-case letters, digits and . + _ - only, at most 100",
            next_step="--name my-stack",
        )
    if name in stacks.names(home) and stacks.load(home, name).extends is None:
        raise errors.BadInputError(
            f"there is a stack {name} already, and it is no extension", next_step=f"--name my-{word(name)}"
        )
    if name not in stacks.names(home):
        for folder in _folders(home, name):
            if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
                raise errors.BadInputError(
                    f"{home.relative(folder)} is there and is no stack, so it stays as it is",
                    next_step=f"--name my-{word(name)}, or move it",
                )


def make(home: Project, base: Lock, request: Request, scratch: Path, say: Callable[[str], None]) -> Extension:
    """Make an extension, and check it. Writes nothing outside of `scratch`.

    Raises BadInputError when the parent is in the way, NetworkError.
    """
    lines = _missing(base, request.requirements.lines)
    sources = scratch / "sources"
    sources.mkdir()
    for file in request.requirements.files:
        shutil.copy2(file, sources)
    for pinned in request.requirements.commits:
        say(f"fetching {pinned.name} from its repository")
        name, version = archives.named(commit.archive(pinned, sources, scratch))
        lines[pinned.name] = f"{name}=={version}"
    base = dataclasses.replace(base, stack=base.stack.beside(sources))
    say("resolving beside the parent")
    versions = extension.solve(base, lines, scratch)
    say("looking for what is older than it need be")
    behind = antique.behind(base, lines, versions, scratch)
    if unhindered := {each.name: pins.moved(lines[each.name], each.newest) for each in behind if not each.conflict}:
        # Their newest release, or what it needs, has no wheel.
        versions = extension.solve(base, {**lines, **unhindered}, scratch)
        behind = [each for each in behind if each.conflict]
    antique.refuse([each for each in behind if each.name not in request.allow_old], base)
    if not versions and not request.debian:
        raise errors.BadInputError(f"{base.name} has all of it already", next_step=f"vetted use {word(base.name)}")
    own_lines = [pins.moved(line, {**base.versions, **versions}[name]) for name, line in lines.items()]
    stack = _stack(base, own_lines, request)
    lock = extension.make(home, request.name, stack.beside(sources), scratch)
    mine = [entry for entry in lock.python if entry.name in lock.own.python]
    files = archives.fetch(home, extension.plain(lock.stack), mine, scratch, say)
    here = {entry.name: path for entry in lock.python if (path := archives.kept(home, entry))}
    own.refuse(lock, {**here, **{entry.name: path for entry, path in files.items()}})
    return Extension(lock, behind, leftout.find(lock, files))


def _missing(base: Lock, lines: Mapping[str, str]) -> dict[str, str]:
    """The requirements that the parent does not meet already. Raises BadInputError for one that it excludes."""
    out = leftout.overrides(base.stack)
    missing = {}
    for name, line in lines.items():
        marker = Requirement(line).marker
        if marker and not marker.evaluate(leftout.HERE | {"python_version": base.stack.python}):
            continue
        version = base.versions.get(name)
        if override := out.get(name):
            raise errors.BadInputError(
                f"{name} is left out of {base.name}: {override.reason}", next_step="leave it out; or vetted list"
            )
        if version is not None and not Requirement(line).specifier.contains(version, prereleases=True):
            raise errors.BadInputError(
                f"{line}: {base.name} has {name} {version}, which stays as it was certified",
                next_step="vetted list, for a stack that has it; or "
                f"vetted recertify {word(base.name)} --upgrade {word(name)}",
            )
        if version is None or Requirement(line).extras:
            missing[name] = line
    return missing


def _stack(base: Lock, own_lines: Sequence[str], request: Request) -> Stack:
    """The stack.toml of the extension."""
    names = [Requirement(line).name for line in own_lines] + list(request.debian)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    extends = Extends(
        stack=base.name, title=base.stack.title, lock=base.digest, debian=list(request.debian),
        git=[pinned.line for pinned in request.requirements.commits],
        allow_old=[name for name in request.allow_old if name in request.requirements.lines],
    )  # fmt: skip
    fields = {
        "title": f"{base.stack.title} + {', '.join(names[:SHOWN])}{more}",
        "platforms": ["amd64"],
        "requires": [*base.stack.requires, *own_lines],
        "extends": extends,
    }
    return base.stack.model_copy(update=fields)


def _folder(home: Project, name: str) -> Path:
    """Where the stack is, or will be."""
    folder = home.stack_dir(name)
    return folder if (folder / "stack.toml").exists() else (home.own_stacks or home.stacks) / name


def _folders(home: Project, name: str) -> list[Path]:
    """The folders of a new stack. Of the user's own stacks, the Dockerfile is beside stack.toml."""
    return [_folder(home, name), *([] if home.own_stacks else [home.dockerfile(name).parent])]


def put(home: Project, lock: Lock, scratch: Path) -> Path:
    """Write the stack: in the user's own folder where there is one, else in the project's. Returns its folder.

    Of a new one, nothing stays after a failure.
    """
    folder = _folder(home, lock.name)
    is_new = not (folder / "stack.toml").exists()
    try:
        _write(home, lock, folder, scratch)
    except BaseException:
        for made in _folders(home, lock.name) if is_new else ():  # they were empty: see refuse_names
            project.remove(made)
        raise
    return folder


def _write(home: Project, lock: Lock, folder: Path, scratch: Path) -> None:
    own_lines = [line for name, line in lock.stack.packages.items() if name in lock.own.python]
    project.write(folder / "stack.toml", written.toml(lock.stack, own_lines), scratch)
    project.remove(folder / "sources")
    if any((scratch / "sources").iterdir()):
        shutil.copytree(scratch / "sources", folder / "sources")
    resolve.put(home, lock, scratch)
    assert lock.stack.extends is not None
    if (read := kernels.path(home, lock.stack.extends.stack)).is_file():
        shutil.copyfile(read, kernels.path(home, lock.name))  # only own files are read then
        kernels.record(home, lock, scratch, lambda _: None)
    lock = lockfile.load(home, lock.name)
    project.write(home.dockerfile(lock.name), render.dockerfile(home, lock), scratch)
