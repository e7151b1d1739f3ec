"""The lock: the resolution of a stack, every distribution and every Debian package with its hash.

Files, all beside stack.toml: requirements.txt (one line per distribution, the hash of the one file that is
installed), build.txt (what builds the source distributions among them), debian.txt (the base layer) and lock.toml
(what it was made from). They name no index and no host: the hashes are the identity.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.base import errors, reading
from builder.base.project import Project
from builder.intent import stack as stacks
from builder.intent.stack import Stack

PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.+!_-]+) --hash=sha256:(?P<sha256>[0-9a-f]{64})"
)
LATEST = 1 << 33  # seconds: archives cannot store a later time
PACKAGE = re.compile(r"(?P<name>[a-z0-9][a-z0-9.+-]*)=(?P<version>[A-Za-z0-9.+:~-]+) sha256:(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True)
class Entry:
    """One locked file: a distribution's wheel or sdist, or a Debian package."""

    name: str
    version: str
    sha256: str

    @property
    def pin(self) -> str:
        """The distribution in a requirements file."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Lock:
    name: str
    stack: Stack
    python: tuple[Entry, ...]
    build: tuple[Entry, ...]
    debian: tuple[Entry, ...]
    epoch: int  # SOURCE_DATE_EPOCH, seconds
    intent: str  # digest of the stack.toml it was resolved from
    patches: tuple[Path, ...]
    digest: str

    @property
    def versions(self) -> dict[str, str]:
        """Normalised distribution name -> version."""
        return {entry.name: entry.version for entry in self.python}

    @property
    def site_packages(self) -> str:
        return f"lib/python{self.stack.python}/site-packages"


def intent(stack: Stack) -> str:
    """The digest of everything in stack.toml that a lock depends on: not of titles and reasons."""
    decisive = {
        "device": stack.device,
        "python": stack.python,
        "debian": stack.debian,
        "requires": sorted(str(Requirement(line)) for line in stack.requires),
        "overrides": sorted(str(Requirement(override.requirement)) for override in stack.override),
    }
    return "sha256:" + hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse(text: str, pattern: re.Pattern[str], where: str, command: str) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            raise errors.BadInputError(
                f"{where}, line {number}: not a locked entry: {line.strip()[:80]!r}",
                cause="the file was edited by hand, or a merge left its marks",
                next_step=f"git checkout {where}, or `{command}`",
            )
        if any(entry.name == match["name"] for entry in entries):
            raise errors.BadInputError(
                f"{where}, line {number}: {match['name']} is locked twice",
                next_step=f"git checkout {where}, or `{command}`",
            )
        entries.append(Entry(match["name"], match["version"], match["sha256"]))
    return tuple(entries)


def format_python(entries: Iterable[Entry]) -> str:
    return "".join(f"{entry.pin} --hash=sha256:{entry.sha256}\n" for entry in entries)


def format_debian(entries: Iterable[Entry]) -> str:
    return "".join(f"{entry.name}={entry.version} sha256:{entry.sha256}\n" for entry in entries)


def format_meta(intent: str, epoch: int) -> str:
    return f'intent = "{intent}"  # of stack.toml\nepoch = {epoch}  # SOURCE_DATE_EPOCH of the image\n'


def header(name: str) -> str:
    return f"# Written by `vetted lock {name}` from stack.toml: do not edit.\n"


def load(project: Project, name: str) -> Lock:
    """Read the lock of a stack. Raises BadInputError when it is missing or malformed."""
    stack = stacks.load(project, name)
    folder = project.stack_dir(name)
    command = f"vetted lock {name}"

    def read(file: str) -> str:
        path = folder / file
        try:
            return reading.text(path, project.relative(path), command)
        except FileNotFoundError as error:
            raise errors.BadInputError(
                f"{project.relative(path)} does not exist", cause="the stack was never locked", next_step=command
            ) from error

    def entries(file: str, pattern: re.Pattern[str]) -> tuple[Entry, ...]:
        return parse(read(file), pattern, project.relative(folder / file), command)

    where = project.relative(folder / "lock.toml")
    meta = reading.parse_toml(read("lock.toml"), where, command)
    epoch, intent = meta.get("epoch"), meta.get("intent")
    if type(epoch) is not int or not 0 <= epoch < LATEST or not isinstance(intent, str):
        raise errors.BadInputError(f"{where}: `epoch` is a number of seconds, `intent` a digest", next_step=command)
    patches = tuple(project.root / patch.file for patch in stack.patch)
    python, build, debian = entries("requirements.txt", PIN), entries("build.txt", PIN), entries("debian.txt", PACKAGE)
    return assemble(name, stack, python, build, debian, epoch, intent, patches)


def assemble(
    name: str,
    stack: Stack,
    python: tuple[Entry, ...],
    build: tuple[Entry, ...],
    debian: tuple[Entry, ...],
    epoch: int,
    intent: str,
    patches: tuple[Path, ...],
) -> Lock:
    """A lock of these parts, with its digest."""
    digest = _digest(stack, python, build, debian, epoch, patches)
    return Lock(name, stack, python, build, debian, epoch, intent, patches, digest)


def _digest(
    stack: Stack,
    python: tuple[Entry, ...],
    build: tuple[Entry, ...],
    debian: tuple[Entry, ...],
    epoch: int,
    patches: tuple[Path, ...],
) -> str:
    """The identity of a lock: everything that decides which bytes are installed, as one canonical document."""
    identity = {
        "python": [stack.python, *format_python(python).splitlines()],
        "build": format_python(build).splitlines(),
        "debian": [stack.debian, *format_debian(debian).splitlines()],
        "epoch": epoch,
        "device": stack.device,
        "patches": [hashlib.sha256(path.read_bytes()).hexdigest() for path in patches],
    }
    return "sha256:" + hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def normalise(name: str) -> str:
    return canonicalize_name(name)
