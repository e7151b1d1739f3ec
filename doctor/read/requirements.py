"""The packages that a list names: a freeze, a lock, requirements, or the versions in somebody's report."""

from __future__ import annotations

import re

from doctor.base import aliases, versions
from doctor.read import files
from doctor.read.distributions import Package
from doctor.read.environment import Environment, Problem
from doctor.read.files import UnreadableError

LARGEST = 8 * 1024 * 1024  # bytes of a list
LONGEST = 2000  # characters of a line
SHORTEST = 25  # pins of a list that is taken for a whole environment, where it has no hashes
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*) ?(?:\[[^\]]*\])? ?===? ?(?P<version>[^\s;,\\#]+)")
COLUMNS = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*) (?P<version>v?\d[A-Za-z0-9.+!_]*)(?: |$)")
FILE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-[^/]*)?")


def of_file(path: str) -> Environment:
    """The packages in a file. Raises UnreadableError."""
    try:
        data, more = files.head(path, LARGEST)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    odd = files.not_text(data[:65536])
    if odd:
        raise UnreadableError(f"{path} {odd}")
    environment = of_lines(f"the file {path}", data.decode("utf-8", "replace"))
    if not environment.packages:
        raise UnreadableError(f"{path} names no package: it is not a freeze, a lock or a list of requirements")
    if more:
        environment.complete = False
        environment.unread.append(Problem(path, f"is larger than {LARGEST // 1024**2} MB: the rest of it was not read"))
    return environment


def of_lines(title: str, text: str) -> Environment:
    """The packages in a text. A list of pins that is long or has hashes is taken for all that is installed."""
    environment = Environment(title)
    unpinned = 0
    for line in text.splitlines():
        package, pinned = _package(" ".join(line[:LONGEST].split()))  # patterns are slow on runs of blanks
        if package is not None:
            environment.packages[package.name] = package
            unpinned += not pinned
    long = len(environment.packages) >= SHORTEST or "--hash=sha256:" in text
    environment.complete = bool(environment.packages) and not unpinned and long
    return environment


def of_versions(title: str, stated: dict[str, str]) -> Environment:
    """The versions that somebody wrote down: never all that is installed."""
    environment = Environment(title)
    for name, version in stated.items():
        if aliases.normalise(name) == "python":
            environment.python = version
        else:
            environment.add(Package(aliases.normalise(name), version.strip()))
    return environment


def _package(line: str) -> tuple[Package | None, bool]:
    """The package that a line names, and whether its version is pinned."""
    if not line or line.startswith(("#", "--")):
        return None, True
    for pattern in (PIN, COLUMNS):
        match = pattern.match(line)
        if match and versions.parse(match["version"]) is not None:
            return Package(aliases.normalise(match["name"]), match["version"]), True
    if "@" in line or "://" in line:
        return _of_url(line)
    requirement = versions.requirement(line.split(" #")[0].rstrip("\\ "))
    if requirement is None:
        return None, True
    return Package(aliases.normalise(requirement.name), str(requirement.specifier) or versions.ANY), False


def _of_url(line: str) -> tuple[Package | None, bool]:
    file = _file_of_url(line)
    if file:
        return Package(aliases.normalise(file["name"]), file["version"].replace("%2B", "+")), True
    name = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*) ?@", line) or re.search(r"#egg=([A-Za-z0-9._-]+)", line)
    return (Package(aliases.normalise(name[1]), versions.ANY) if name else None), False


def _file_of_url(line: str) -> re.Match[str] | None:
    """Name and version of the wheel or source distribution that a URL ends in."""
    for ending in (".whl", ".tar.gz"):
        before, separator, _ = line.partition(ending)
        if separator:
            return FILE.fullmatch(re.split(r"[/\s@:=]", before)[-1])
    return None
