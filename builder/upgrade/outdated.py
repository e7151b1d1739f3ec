"""What is newer than a stack's pins, and whether the ranges that the others declare would let it in."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from builder.base import aliases
from builder.intent.stack import Stack
from builder.lock import audit, index, lockfile, solver
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Row:
    """One distribution that stack.toml names: what is locked, the newest, the newest that fits, and what is in the way.

    `fits` is the newest version that resolves beside all other pins; it is the locked one where nothing newer does.
    """

    name: str
    locked: str
    newest: str
    fits: str
    why_not: str = ""

    @property
    def allowed(self) -> bool:
        """Do the declared ranges let the newest in?"""
        return self.fits == self.newest


def of_stack(lock: Lock, scratch: Path) -> list[Row]:
    """The distributions of stack.toml that have a newer release for its Python and platform."""
    newest = newest_versions(lock, scratch)
    rows = []
    for name in lock.stack.packages:
        locked = lock.versions.get(name)
        last = newest.get(name)
        if locked is None or last is None or Version(last) <= Version(locked):
            continue
        conflict = resolved(moved(lock.stack, name, last), scratch)[1]
        fits = last if not conflict else _newest_that_fits(lock, name, locked, scratch)
        if fits != locked and (range_ := _outside_of_trl(lock, name, fits, scratch)):
            fits, conflict = locked, range_
        rows.append(Row(name, locked, last, fits, conflict))
    return rows


def _outside_of_trl(lock: Lock, name: str, version: str, scratch: Path) -> str:
    """What TRL has to say of a vLLM: an extra that nobody asks for declares it, so uv does not look."""
    there = {**lock.versions, name: version}
    if name not in ("trl", *aliases.providers("vllm")) or "trl" not in there:
        return ""
    entries = tuple(dataclasses.replace(entry, version=there[entry.name]) for entry in lock.python)
    offered, _ = index.offers(lock.stack, scratch, [f"trl=={there['trl']}"])
    findings = audit.vllm_range(dataclasses.replace(lock, python=entries), offered)
    return findings[0].what if findings else ""


def newest_versions(lock: Lock, scratch: Path) -> dict[str, str]:
    """The newest release of each distribution that stack.toml names, whatever the others say of it.

    A local version such as +cpu is a build of its own: it is asked for by the index that has it.
    """
    names = list(lock.stack.packages)
    found, conflict = resolved(lock.stack.model_copy(update={"override": []}), scratch, names, ["--no-deps"])
    if not conflict:
        return found
    # One that cannot be found on its own must not hide the others.
    alone: dict[str, str] = {}
    for name in names:
        alone |= resolved(lock.stack, scratch, [name], ["--no-deps"])[0]
    return alone


def moved(wanted: Stack, name: str, version: str) -> Stack:
    """The stack with one of its pins moved."""
    pins = {key: _pin(line, version) if key == name else line for key, line in wanted.packages.items()}
    return wanted.model_copy(update={"requires": list(pins.values())})


def _pin(line: str, version: str) -> str:
    asked = Requirement(line)
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    marker = f" ; {asked.marker}" if asked.marker else ""
    return f"{asked.name}{extras}=={version}{marker}"


def _newest_that_fits(lock: Lock, name: str, locked: str, scratch: Path) -> str:
    """uv takes the newest of what is left free."""
    free = [f"{name}>={locked.partition('+')[0]}" if key == name else line for key, line in lock.stack.packages.items()]
    found, conflict = resolved(lock.stack, scratch, free)
    return locked if conflict else found.get(name, locked)


def resolved(
    wanted: Stack, scratch: Path, requirements: list[str] | None = None, options: list[str] | None = None
) -> tuple[dict[str, str], str]:
    """The versions that uv finds, or what it says is in the way."""
    target = scratch / "outdated.txt"
    target.unlink(missing_ok=True)
    asked = requirements or wanted.requires
    result = solver.compile_pins(wanted, scratch, asked, [*(options or []), "-o", str(target)])
    if result.returncode != 0:
        return {}, in_short(result.stderr)
    lines = [line.partition("==") for line in target.read_text().splitlines() if "==" in line]
    return {lockfile.normalise(name): version.split()[0] for name, _, version in lines}, ""


def in_short(said: str) -> str:
    """What uv said is in the way: without its drawing, its warnings, and that there is no solution."""
    words = " ".join(re.sub(r"[×│╰├─▶]", " ", said).split())
    return re.sub(r"^.*?No solution found when resolving dependencies:?( cause:)? ?|^error: ", "", words)
