"""The packages that a list names: a freeze, a lock, requirements, or the versions in somebody's report."""

from __future__ import annotations

import os
import re
from pathlib import Path

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
INCLUDED = re.compile(r"(?:-r|--requirement)[ =]?(?P<path>[^\s#]+)")
TAG = re.compile(r"(?:git|hg)\+\S+@v?(?P<version>\d+(?:\.\d+)+[\w.]*)(?:[#\s]|$)")  # a release's, of a repository
PASSWORD = re.compile(r"//[^/\s]*@")  # of a URL; an answer is pasted into issues
TABLE = re.compile(
    r'^\[\[packages?\]\][ \t]*\r?\nname = "([A-Za-z0-9._-]{1,200})"[ \t]*\r?\nversion = "([^"\n]{1,200})"', re.MULTILINE
)
MOST_INCLUDED = 20  # files
FILE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-[^/]*)?")


def of_file(path: str) -> Environment:
    """The packages in a file. Raises UnreadableError."""
    problems: list[Problem] = []
    text = _of_tables(_with_included(path, problems, []), problems)
    environment = of_lines(f"the file {path}", text)
    if not environment.packages:
        raise UnreadableError(f"{path} names no package: it is not a freeze, a lock or a list of requirements")
    nameless = [line for line in map(_tidy, text.splitlines()) if _is_nameless(line)]
    problems += [Problem(PASSWORD.sub("//", line), "names no package: add its name, `name @ URL`") for line in nameless]
    if problems:
        environment.complete = False
        environment.unread += problems
    return environment


def _of_tables(text: str, problems: list[Problem]) -> str:
    """The pins in a lock with a table for each package (uv, Poetry, pylock); any other text as it is."""
    versions: dict[str, list[str]] = {}
    for name, version in TABLE.findall(text):
        versions.setdefault(name, []).append(version)
    if not versions:
        return text
    problems += [
        Problem(name, f"is locked in several versions ({', '.join(own)}): which one is installed is not known")
        for name, own in versions.items()
        if len(own) > 1
    ]
    return "".join(f"{name}=={own[0]}\n" for name, own in versions.items() if len(own) == 1)


def _with_included(path: str, problems: list[Problem], included: list[str]) -> str:
    """The text of a file, with that of the files that it includes (`-r`) in their places."""
    try:
        data, more = files.head(path, LARGEST)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    odd = files.not_text(data[:65536])
    if odd:
        raise UnreadableError(f"{path} {odd}")
    if more:
        problems.append(Problem(path, f"is larger than {LARGEST // 1024**2} MiB: the rest of it was not read"))
    included.append(os.path.realpath(path))
    lines: list[str] = []
    for line in data.decode("utf-8-sig", "replace").splitlines():
        match = INCLUDED.match(_tidy(line))
        if match is None:
            lines.append(line)
            continue
        other = str(Path(path).parent / match["path"])
        if "://" in match["path"] or len(included) >= MOST_INCLUDED:
            problems.append(Problem(PASSWORD.sub("//", match["path"]), "is included, and was not read"))
        elif os.path.realpath(other) not in included:
            try:
                lines += _with_included(other, problems, included).splitlines()
            except UnreadableError as error:
                problems.append(Problem(match["path"], f"is included, and was not read: {error}"))
    return "\n".join(lines)


def _is_nameless(line: str) -> bool:
    """Is it a package's URL without its name?"""
    return "://" in line and not line.startswith(("#", "--", "-i ", "-f ")) and _package(line)[0] is None


def of_lines(title: str, text: str) -> Environment:
    """The packages in a text. A list of pins that is long or has hashes is taken for all that is installed."""
    environment = Environment(title)
    unpinned = 0
    for line in text.splitlines():
        package, pinned = _package(_tidy(line))
        if package is not None:
            environment.packages[package.name] = package
            unpinned += not pinned
    long = len(environment.packages) >= SHORTEST or "--hash=sha256:" in text
    environment.complete = bool(environment.packages) and not unpinned and long
    return environment


def listed(line: str) -> tuple[str | None, bool]:
    """The package that a line of a list would name, and whether it says so: by a version, a range or a file.

    A name and a number, as in "Step 5", are a line of `pip list` only if the number has a dot.
    """
    tidy = _tidy(line)
    package, pinned = _package(tidy)
    if package is None:
        return None, False
    columns = PIN.match(tidy) is None and COLUMNS.match(tidy)
    if columns:
        told = "." in columns["version"] and len(tidy.split()) <= 5
        return (package.name if told else None), told
    return package.name, pinned or package.version != versions.ANY


def _tidy(line: str) -> str:
    """The beginning of a line, with single blanks: patterns are slow on runs of them."""
    return " ".join(line[:LONGEST].split())


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
    name = re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])? ?@", line) or re.search(
        r"#egg=([A-Za-z0-9._-]+)", line
    )
    if name is None:
        return None, False
    tag = TAG.search(line)
    version = tag["version"] if tag and versions.parse(tag["version"]) is not None else versions.ANY
    return Package(aliases.normalise(name[1]), version), version != versions.ANY


def _file_of_url(line: str) -> re.Match[str] | None:
    """Name and version of the wheel or source distribution that a URL ends in."""
    for ending in (".whl", ".tar.gz"):
        before, separator, _ = line.partition(ending)
        if separator:
            return FILE.fullmatch(re.split(r"[/\s@:=]", before)[-1])
    return None
