"""The candidate of an upgrade: its pins in stack.toml, and its lock."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.base import errors
from builder.base.project import write
from builder.base.text import word
from builder.intent import stack
from builder.lock import extension, resolve
from builder.lock.lockfile import Lock
from builder.upgrade import outdated
from builder.upgrade.aside import Aside


def write_lock(aside: Aside, old: Lock, upgrade: Sequence[str], scratch: Path) -> None:
    """Write the candidate's stack.toml and lock. Raises BadInputError for a bad request, or without a solution."""
    name = old.name
    if list(upgrade) == ["all"]:
        resolve.make(aside, name, old.stack, scratch, [])
        return
    pins, others = _requests(old, upgrade)
    if pins:
        _move_pins(aside.stack_dir(name) / "stack.toml", old, pins, scratch)
    # Without a request: all that no pin fixes. An empty list would move Debian's packages as well.
    free = list(old.own.python if old.stack.extends else old.versions)
    resolve.make(aside, name, stack.load(aside, name), scratch, (others or None) if upgrade else free)


def _requests(old: Lock, upgrade: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The pins to move, to a version or ("") as far as the ranges allow; and the names that no pin fixes."""
    pins: dict[str, str] = {}
    others = []
    for line in upgrade:
        name, version = _request(line)
        if old.stack.extends and name in old.parent.versions:
            raise extension.not_own(old.parent.name, old.name, name)
        if name in old.stack.pinned:
            if not version and "+" in old.versions.get(name, ""):
                raise errors.BadInputError(
                    f"{name} {old.versions[name]} is a build that the index does not list: name the version",
                    next_step=f"--upgrade {word(name)}==VERSION+{word(old.versions[name].partition('+')[2])}",
                )
            pins[name] = version
        elif name == "debian" or (name in old.versions and not version):
            others.append(name)
        else:
            raise errors.BadInputError(
                f"{line}: no pin of {old.name}" + (", so uv decides its version" if name in old.versions else ""),
                next_step=f"vetted outdated {word(old.name)}",
            )
    return pins, others


def _request(line: str) -> tuple[str, str]:
    """The name and version ("" for none) of `trl` or `trl==1.16.0`. Raises BadInputError."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        raise errors.BadInputError(f"{line!r} is not a package to upgrade", next_step="--upgrade trl") from error
    name, specifier = canonicalize_name(requirement.name), str(requirement.specifier)
    if specifier and not specifier.startswith("=="):
        raise errors.BadInputError(f"{line!r}: write one version, or none", next_step=f"--upgrade {word(name)}")
    return name, specifier.removeprefix("==")


def _move_pins(path: Path, old: Lock, pins: Mapping[str, str], scratch: Path) -> None:
    """Write the new versions into stack.toml, and leave everything else as the person wrote it."""
    new = old.stack
    for name, version in pins.items():
        if version:
            new = outdated.moved(new, name, version)
    free = [name for name, version in pins.items() if not version]
    if free:
        lines = [f"{name}>={old.versions[name]}" if name in free else line for name, line in new.packages.items()]
        versions, conflict = outdated.resolved(new, scratch, lines, outdated.limits(old, scratch))
        if conflict:
            raise errors.BadInputError(f"the stack has no solution\n{conflict}")
        for name in free:
            new = outdated.moved(new, name, versions[name])
    text = path.read_text(encoding="utf-8")
    for name in pins:
        before, after = old.stack.packages[name], new.packages[name]
        pattern = f"([\"']){re.escape(before)}\\1"
        text, count = re.subn(pattern, lambda _, after=after: f'"{after}"', text)  # type: ignore[misc]
        if count != 1:
            raise errors.BadInputError(
                f"stack.toml of {old.name} names {before} {count} times",
                next_step=f"write {word(after)} there, and vetted lock",
            )
    write(path, text, scratch)
