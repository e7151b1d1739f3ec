"""What own packages require and their parent leaves out: no resolver says so, and an import may fail for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from builder.intent.stack import Override, Stack
from builder.lock import metadata
from builder.lock.lockfile import Entry, Lock, normalise

# What markers ask for, in an image.
HERE = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


@dataclass(frozen=True)
class LeftOut:
    """A distribution that a parent leaves out, the own packages that require it, and the parent's reason."""

    name: str
    required_by: tuple[str, ...]
    reason: str


def overrides(stack: Stack) -> dict[str, Override]:
    """The overrides that leave a distribution out, by its name."""
    return {override.package: override for override in stack.override if _leaves_out(override)}


def _leaves_out(override: Override) -> bool:
    marker = Requirement(override.requirement).marker
    return marker is not None and not marker.evaluate(HERE)


def find(lock: Lock, files: Mapping[Entry, Path]) -> list[LeftOut]:
    """What the own packages of an extension require that its parent leaves out. `files`: theirs."""
    out = overrides(lock.stack)
    required: dict[str, list[str]] = {}
    for entry, path in files.items():
        direct = lock.stack.packages.get(entry.name)
        extras = ["", *sorted(Requirement(direct).extras)] if direct else [""]
        for name in _requirements(path, lock.stack.python, extras) & out.keys():
            required.setdefault(name, []).append(entry.name)
    return [LeftOut(name, tuple(sorted(names)), out[name].reason) for name, names in sorted(required.items())]


def _requirements(path: Path, python: str, extras: list[str]) -> set[str]:
    """The distributions that a file declares to require here; none where it declares nothing that can be read."""
    names = set()
    for line in metadata.kept(path).get("requires_dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        here = [HERE | {"python_version": python, "extra": extra} for extra in extras]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in here):
            names.add(normalise(requirement.name))
    return names
