"""Which files a bundle carries: those of the lock for the host's Python, and the wheels of the verifier (this tool)."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from builder.base import errors
from builder.base.project import Project
from builder.base.text import word
from builder.intent.stack import Stack
from builder.lock import archives, index
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock

TOOL = Path(__file__).parents[1]  # the package `builder`


@dataclass(frozen=True)
class Pin:
    """A package of the tool's own lock."""

    name: str
    version: str
    hashes: frozenset[str]


def unfit(lock: Lock, python: str, what: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"the locked versions of {lock.name} do not all have a file for Python {python}\n{what}",
        cause="a version that is older than that Python, or a wheelhouse that has it for one Python only",
        next_step=f"install python{word(lock.stack.python)} on the host, and leave --python out",
    )


def locked(project: Project, lock: Lock, stack: Stack, scratch: Path, entries: Sequence[Entry]) -> list[File]:
    """The file of each entry: the locked one, or for another Python than the stack's the best that fits.

    Raises BadInputError when an entry has no such file, NetworkError when the index does not answer.
    """
    if not entries:
        return []
    if stack.python == lock.stack.python:
        kept = {entry: path for entry in entries if (path := archives.kept(project, entry))}
        if len(kept) == len(entries):  # no index is asked
            return [File(entry.name, entry.version, path.name, str(path), entry.sha256) for entry, path in kept.items()]
    try:
        offered = index.offers(stack, scratch, [entry.pin for entry in entries])[0]
    except errors.BadInputError as error:
        if stack.python == lock.stack.python:
            raise
        raise unfit(lock, stack.python, error.what) from error
    files = []
    for entry in entries:
        offers = offered.get(entry.name, [])
        if stack.python == lock.stack.python or not offers:
            files.append(archives.of_hash(entry, offers))
        else:
            files.append(next((file for file in offers if file.sha256 == entry.sha256), offers[0]))
    return files


def tool_pins(python: str) -> dict[str, Pin]:
    """The tool's own locked packages that the verifier needs on that Python, by name.

    Raises MissingToolError where the tool's lock is not beside it, BadInputError when the lock lacks one.
    """
    try:
        text = (TOOL.parent / "requirements.txt").read_text()
        needed = tomllib.loads((TOOL.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    except FileNotFoundError as error:
        raise errors.MissingToolError(
            "the tool's own lock, requirements.txt, is not beside it",
            cause="it was installed as a package",
            next_step="run ./vetted in a clone of the project",
        ) from error
    locked: dict[str, Pin] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := re.match(r"([a-z0-9-]+)==(\S+)", line):
            hashes = frozenset(re.findall(r"sha256:([0-9a-f]{64})", line))
            locked[match[1]] = Pin(match[1], match[2], hashes)
    marker = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "extra": ""}
    pins: dict[str, Pin] = {}
    ahead = [Requirement(line) for line in needed]
    while ahead:
        requirement = ahead.pop()
        name = canonicalize_name(requirement.name)
        if name in pins or (requirement.marker and not requirement.marker.evaluate(marker)):
            continue
        if name not in locked:
            raise errors.BadInputError(f"requirements.txt locks no {name}", next_step="./nox -s lock")
        pins[name] = locked[name]
        ahead += [Requirement(line) for line in importlib.metadata.requires(name) or ()]
    return pins


def verifier(stack: Stack, scratch: Path, pins: Mapping[str, Pin]) -> list[File]:
    """A wheel of each of the verifier's packages. Raises NetworkError when none is offered that is locked and fits."""
    if not pins:
        return []
    offered = index.offers(stack, scratch, [f"{pin.name}=={pin.version}" for pin in pins.values()])[0]
    files = []
    for name, pin in sorted(pins.items()):
        wheels = [file for file in offered.get(name, []) if file.is_wheel and file.sha256 in pin.hashes]
        if not wheels:
            raise errors.NetworkError(
                f"the verifier's own packages: no wheel of {name} {pin.version} that is offered fits "
                f"Python {stack.python} and is locked",
                next_step="./nox -s lock, or another --python",
            )
        files.append(wheels[0])
    return files
