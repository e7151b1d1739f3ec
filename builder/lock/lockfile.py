"""The lock: the resolution of a stack, every distribution and every Debian package with its hash.

Files, all beside stack.toml: requirements.txt (one line per distribution, the hash of the one file that is
installed), build.txt (what builds the source distributions among them), debian.txt (the base layer) and lock.toml
(what it was made from). For a second platform there are requirements.arm64.txt and debian.arm64.txt; the other two are
for all, because everything is built on amd64. They name no index and no host: the hashes are the identity.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter, ValidationError

from builder.base import errors, reading
from builder.base.project import Project
from builder.base.text import word
from builder.intent import stack as stacks
from builder.intent.platform import AMD64, PLATFORMS, Platform
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
class Own:
    """The names of what an extension has beside its parent: distributions, those of them that are built from source,
    what builds these, and Debian packages. All of it is empty in any other lock."""

    python: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()


OWN = TypeAdapter(Own)


@dataclass(frozen=True)
class Lock:
    """The lock of a stack for one platform, that of `stack`."""

    name: str
    stack: Stack
    python: tuple[Entry, ...]
    build: tuple[Entry, ...]
    debian: tuple[Entry, ...]
    epoch: int  # SOURCE_DATE_EPOCH, seconds
    intent: str  # digest of the stack.toml it was resolved from
    patches: tuple[Path, ...]
    digest: str
    own: Own = Own()

    @property
    def platform(self) -> Platform:
        return self.stack.platform

    @property
    def image(self) -> str:
        """The name of its image: one stack has an image for each of its platforms."""
        return self.name if self.platform is AMD64 else f"{self.name}.{self.platform.name}"

    @property
    def versions(self) -> dict[str, str]:
        """Normalised distribution name -> version."""
        return {entry.name: entry.version for entry in self.python}

    @property
    def site_packages(self) -> str:
        return f"lib/python{self.stack.python}/site-packages"

    @property
    def parent(self) -> Lock:
        """The lock that an extension extends, as far as it is in this one; any other lock itself."""
        extends = self.stack.extends
        if extends is None:
            return self
        keep = [normalise(patch.package) not in self.own.python for patch in self.stack.patch]
        fields = {
            "title": extends.title,
            "requires": [line for name, line in self.stack.packages.items() if name not in self.own.python],
            "patch": list(itertools.compress(self.stack.patch, keep)),
            "extends": None,
        }
        return assemble(
            extends.stack,
            self.stack.model_copy(update=fields),
            tuple(entry for entry in self.python if entry.name not in self.own.python),
            tuple(entry for entry in self.build if entry.name not in self.own.build),
            tuple(entry for entry in self.debian if entry.name not in self.own.debian),
            self.epoch,
            "",
            tuple(itertools.compress(self.patches, keep)),
        )


def intent(stack: Stack) -> str:
    """The digest of everything in stack.toml that a lock depends on: not of titles and reasons."""
    decisive = {
        "device": stack.device,
        "python": stack.python,
        "debian": stack.debian,
        "requires": sorted(str(Requirement(line)) for line in stack.requires),
        "overrides": sorted(str(Requirement(override.requirement)) for override in stack.override),
        **({"extends": [stack.extends.lock, *sorted(stack.extends.debian)]} if stack.extends else {}),
    }
    return "sha256:" + hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def parse(text: str, pattern: re.Pattern[str], where: str, command: str) -> tuple[Entry, ...]:
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            raise errors.BadInputError(
                f"{where}, line {number}: not a locked entry: {line.strip()[:80]!r}",
                cause="the file was edited by hand, or a merge left its marks",
                next_step=f"git checkout {word(where)}, or `{command}`",
            )
        if match["name"] in entries:
            raise errors.BadInputError(
                f"{where}, line {number}: {match['name']} is locked twice",
                next_step=f"git checkout {word(where)}, or `{command}`",
            )
        entries[match["name"]] = Entry(match["name"], match["version"], match["sha256"])
    return tuple(entries.values())


def format_python(entries: Iterable[Entry]) -> str:
    return "".join(f"{entry.pin} --hash=sha256:{entry.sha256}\n" for entry in entries)


def format_debian(entries: Iterable[Entry]) -> str:
    return "".join(f"{entry.name}={entry.version} sha256:{entry.sha256}\n" for entry in entries)


def format_meta(intent: str, epoch: int, own: Own = Own()) -> str:
    text = f'intent = "{intent}"  # of stack.toml\nepoch = {epoch}  # SOURCE_DATE_EPOCH of the image\n'
    if own == Own():
        return text
    lines = [f"{key} = {json.dumps(names)}\n" for key, names in dataclasses.asdict(own).items()]
    return f"{text}\n[own]  # what is not the parent's\n{''.join(lines)}"


def header(name: str) -> str:
    return f"# Written by `vetted lock {word(name)}` from stack.toml: do not edit.\n"


def load_all(project: Project, name: str) -> list[Lock]:
    """Read the locks of a stack for all of its platforms. Raises BadInputError."""
    platforms = stacks.load(project, name).platforms
    return [load(project, name, PLATFORMS[platform]) for platform in platforms]


def load(project: Project, name: str, platform: Platform = AMD64) -> Lock:
    """Read the lock of a stack for one of its platforms. Raises BadInputError when it is missing or malformed."""
    stack = stacks.load(project, name)
    if platform.name not in stack.platforms:
        raise errors.BadInputError(
            f"{name} is not for {platform.name}",
            next_step=f"add {word(platform.name)} to `platforms` in its stack.toml, then vetted lock {word(name)}",
        )
    if platform is not AMD64:
        stack = stack.on(platform)
    folder = project.stack_dir(name)
    command = f"vetted lock {word(name)}"

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
    own = _own(meta.get("own", {}), where, command)
    patches = tuple(project.root / patch.file for patch in stack.patch)
    python, debian = entries(platform.file("requirements.txt"), PIN), entries(platform.file("debian.txt"), PACKAGE)
    return assemble(name, stack, python, entries("build.txt", PIN), debian, epoch, intent, patches, own)


def _own(table: object, where: str, command: str) -> Own:
    try:
        return OWN.validate_python(table)
    except ValidationError as error:
        keys = ", ".join(field.name for field in dataclasses.fields(Own))
        raise errors.BadInputError(f"{where}: `own` has lists of names: {keys}", next_step=command) from error


def assemble(
    name: str,
    stack: Stack,
    python: tuple[Entry, ...],
    build: tuple[Entry, ...],
    debian: tuple[Entry, ...],
    epoch: int,
    intent: str,
    patches: tuple[Path, ...],
    own: Own = Own(),
) -> Lock:
    """A lock of these parts, with its digest."""
    digest = _digest(stack, python, build, debian, epoch, patches, own)
    return Lock(name, stack, python, build, debian, epoch, intent, patches, digest, own)


def _digest(
    stack: Stack,
    python: tuple[Entry, ...],
    build: tuple[Entry, ...],
    debian: tuple[Entry, ...],
    epoch: int,
    patches: tuple[Path, ...],
    own: Own,
) -> str:
    """The identity of a lock: everything that decides which bytes are installed, as one canonical document."""
    identity = {
        "python": [stack.python, *format_python(python).splitlines()],
        "build": format_python(build).splitlines(),
        "debian": [stack.debian, *format_debian(debian).splitlines()],
        "epoch": epoch,
        "device": stack.device,
        "patches": [hashlib.sha256(path.read_bytes()).hexdigest() for path in patches],
        **({} if stack.platform is AMD64 else {"platform": stack.platform.name}),
        **({"extends": stack.extends.lock, "own": dataclasses.asdict(own)} if stack.extends else {}),
    }
    return "sha256:" + hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def source_version(version: str) -> str:
    """The version of a Debian package's source. Some packages are built anew for one platform alone: 1.2-3+b1."""
    return re.sub(r"\+b[0-9]+$", "", version)


def normalise(name: str) -> str:
    return canonicalize_name(name)
