"""The antique guard: with a lock as constraints, resolvers silently take releases from years ago.

A distribution that fits beside every pin is often found: the last release from before it required anything that
conflicts. It installs, and is not what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from builder.base import errors, pins
from builder.base.text import word
from builder.lock import extension, index, lockfile, solver
from builder.lock.extension import Conflict, Lines
from builder.lock.lockfile import Lock

# A release is far behind when a newer one was there this long before the newest. Projects release weekly or yearly: a
# number of releases says little. Where the index has no dates, it is this many releases.
LONG = timedelta(days=183)
MANY = 5


@dataclass(frozen=True)
class Behind:
    """A distribution that is older than its newest release, and what is in the way of that."""

    name: str
    version: str
    newest: str
    far: bool
    conflict: Conflict | None

    def __str__(self) -> str:
        obstacle = self.conflict.obstacle if self.conflict else ""
        return f"{self.name} {self.version}, and not {self.newest}" + (
            f": {obstacle} is in the way" if obstacle else ""
        )


def behind(base: Lock, lines: Lines, versions: Mapping[str, str], scratch: Path) -> list[Behind]:
    """The direct requirements that are not at their newest release for the Python and the platform of a parent.

    The newest is that which the requirement itself allows: `mlflow<3` means what it says.
    """
    newest = _newest(base, lines, scratch)
    for name in lines.keys() - newest.keys():  # what no index has must not hide the others
        newest |= _newest(base, {name: lines[name]}, scratch)
    behind_newest = []
    for name, line in lines.items():
        version, last = versions.get(name), newest.get(name)
        if version is None or last is None or Version(version) >= Version(last):
            continue
        last = _newest(base, {name: line}, scratch, alone=False).get(name, last)
        if Version(version) >= Version(last):
            continue  # its newest has no solution anywhere
        moved = {**lines, name: pins.moved(line, last)}
        far = _is_far(base, line, version, last, scratch)
        behind_newest.append(Behind(name, version, last, far, extension.conflict(base, moved, scratch)))
    return behind_newest


def refuse(behind: Sequence[Behind], base: Lock) -> None:
    """Raise BadInputError for what is far behind: it is not what a user means by the name of a package."""
    if far := [each for each in behind if each.far]:
        words = [str(each) for each in far]
        words += [f"  {each.name}: {each.conflict.words}" for each in far if each.conflict and each.conflict.pins]
        raise errors.BadInputError(
            f"only old releases fit {base.name}\n" + "\n".join(words),
            cause="the resolver takes the last release whose requirements do not contradict a pin of the parent",
            next_step="vetted list, for a stack with other pins; or accept it: "
            + " ".join(f"--allow-old {word(each.name)}" for each in far),
        )


def _is_far(base: Lock, line: str, version: str, newest: str, scratch: Path) -> bool:
    name = Requirement(line).name
    files, _ = index.offers(extension.plain(base.stack), scratch, [f"{name}=={newest}"])
    uploaded = next((file.uploaded for each in files.values() for file in each if file.uploaded), None)
    if uploaded:
        before = (uploaded - LONG).strftime("%Y-%m-%dT%H:%M:%SZ")
        earlier = _newest(base, {name: line}, scratch, f"--exclude-newer={before}").get(lockfile.normalise(name))
        return earlier is not None and Version(earlier) > Version(version)
    last: str | None = newest
    for _ in range(MANY):
        last = _newest(base, {name: line, "older": f"{name}<{last}"}, scratch).get(lockfile.normalise(name))
        if last is None or Version(last) <= Version(version):
            return False
    return True


def _newest(base: Lock, lines: Lines, scratch: Path, *options: str, alone: bool = True) -> dict[str, str]:
    """The newest releases that requirements allow, without the parent. `alone`: whatever they require themselves."""
    target = scratch / "newest.txt"
    target.unlink(missing_ok=True)
    stack = extension.plain(base.stack)
    result = solver.compile_pins(
        stack, scratch, list(lines.values()), [*(["--no-deps"] if alone else []), *options, "-o", str(target)]
    )
    return pins.read(target.read_text()) if result.returncode == 0 else {}
