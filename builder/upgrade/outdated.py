"""What is newer than a stack's pins, and whether the declared ranges of the other packages allow it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from builder.base import aliases, errors, pins
from builder.intent.stack import Stack
from builder.lock import audit, index, solver
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class OutdatedPin:
    """A distribution of stack.toml with a newer release. `fits` is the newest version that resolves beside all other
    pins: the locked one where nothing newer does. `why_not` is what is in the way of the newest: what
    packages declare, or the words of uv, whose `proof` is all that it says."""

    name: str
    locked: str
    newest: str
    fits: str
    why_not: str = ""
    proof: str = ""

    @property
    def allowed(self) -> bool:
        """Do the declared ranges allow the newest version?"""
        return self.fits == self.newest


def of_stack(lock: Lock, scratch: Path) -> list[OutdatedPin]:
    """The distributions of stack.toml that have a newer release for its Python and platform."""
    newest = newest_versions(lock, scratch)
    outdated = []
    for name in lock.stack.packages:
        if lock.stack.extends and name not in lock.own.python:
            continue  # the parent's, which stays as it is
        locked = lock.versions.get(name)
        last = newest.get(name)
        if locked is None or last is None or Version(last) <= Version(locked):
            continue
        proof = resolved(moved(lock.stack, name, last), scratch, None, limits(lock, scratch))[1]
        why_not = _in_the_way(lock, name, last, proof)
        fits = last if not proof else _newest_that_fits(lock, name, locked, scratch)
        if fits != locked and (violation := _outside_of_trl(lock, name, fits, scratch)):
            fits, why_not = locked, violation
        outdated.append(OutdatedPin(name, locked, last, fits, why_not, proof))
    return outdated


def _in_the_way(lock: Lock, name: str, version: str, proof: str) -> str:
    """What packages declare against a version, or uv's own words; "" where nothing is in the way."""
    return solver.in_the_way(proof, {**lock.versions, name: version}) or proof


def _outside_of_trl(lock: Lock, name: str, version: str, scratch: Path) -> str:
    """How a version violates TRL's range of vLLM. uv does not check it: it is declared by an extra of TRL's."""
    versions = {**lock.versions, name: version}
    if name not in ("trl", *aliases.providers("vllm")) or "trl" not in versions:
        return ""
    entries = tuple(dataclasses.replace(entry, version=versions[entry.name]) for entry in lock.python)
    files, _ = index.offers(lock.stack, scratch, [f"trl=={versions['trl']}"])
    findings = audit.vllm_range(dataclasses.replace(lock, python=entries), files)
    return findings[0].what if findings else ""


def newest_versions(lock: Lock, scratch: Path) -> dict[str, str]:
    """The newest release of each distribution of stack.toml, whatever the others require.

    A local version such as +cpu is a build of its own: the index that has it knows the newest.
    """
    names = list(lock.stack.packages)
    versions, conflict = resolved(lock.stack.model_copy(update={"override": []}), scratch, names, ["--no-deps"])
    if not conflict:
        return versions
    # One that the index does not have must not hide the others.
    for name in names:
        versions |= resolved(lock.stack, scratch, [name], ["--no-deps"])[0]
    return versions


def moved(stack: Stack, name: str, version: str) -> Stack:
    """The stack with one of its pins moved."""
    requires = [pins.moved(line, version) if key == name else line for key, line in stack.packages.items()]
    return stack.model_copy(update={"requires": requires})


def _newest_that_fits(lock: Lock, name: str, locked: str, scratch: Path) -> str:
    return at_least(lock, name, locked.partition("+")[0], scratch)[0] or locked


def at_least(lock: Lock, name: str, version: str, scratch: Path) -> tuple[str, str]:
    """The version that uv takes beside all other pins when it has to be this one or newer, or what is in the way."""
    free = [line for key, line in lock.stack.packages.items() if key != name]
    versions, conflict = resolved(lock.stack, scratch, [*free, f"{name}>={version}"], limits(lock, scratch))
    return versions.get(name, ""), _in_the_way(lock, name, version, conflict)


def limits(lock: Lock, scratch: Path) -> list[str]:
    """The options by which uv moves nothing of the parent's, in the lock of an extension."""
    if lock.stack.extends is None:
        return []
    (scratch / "parent.txt").write_text("\n".join(pins.lines(lock.parent.versions)) + "\n")
    return [f"--constraint={scratch / 'parent.txt'}"]


def resolved(
    stack: Stack, scratch: Path, requirements: Sequence[str] | None = None, options: Sequence[str] = ()
) -> tuple[dict[str, str], str]:
    """The versions that uv finds for these requirements (None: the stack's), or what it says is in the way."""
    target = scratch / "outdated.txt"
    target.unlink(missing_ok=True)
    lines = stack.requires if requirements is None else requirements
    result = solver.compile_pins(stack, scratch, lines, [*options, "-o", str(target)])
    if result.returncode not in (0, 1):  # 1 is a conflict; with others, uv has not tried
        raise errors.from_tool("resolving the stack", result.output, next_step="vetted lock --check")
    return ({}, solver.in_short(result.stderr)) if result.returncode != 0 else (pins.read(target.read_text()), "")
