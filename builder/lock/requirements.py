"""What somebody wants on top of a stack: a requirements file, read strictly.

A line is a requirement; or a file of this machine, a wheel or a source archive; or a commit of a git repository. Where
packages come from is configured on the machine, so an option in the file is refused. No message has a password.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from builder.base import errors, reading
from builder.base.text import word
from builder.intent.extension import COMMIT, GIT

# What is wrong with an option in the file, and what to do.
OPTIONS = (
    (re.compile(r"(-i|-f|--(extra-)?index-url|--find-links|--no-index|--trusted-host)\b"),
     "names an index", "set UV_INDEX and UV_INDEX_NAME_USERNAME, UV_INDEX_NAME_PASSWORD; docs/how-to/extend.md"),
    (re.compile(r"(-e|--editable)\b"), "is editable, and an image is not",
     "build a wheel with `uv build`, and name the file; or train with your script as it lies there"),
    (re.compile(r"(-r|-c|--requirement|--constraint)\b"), "names another file", "write its lines into this one"),
)  # fmt: skip
PASSWORD = re.compile(r"//[^/@\s]+@")
ARCHIVES = (".whl", ".tar.gz")


@dataclass(frozen=True)
class Commit:
    """A commit of a git repository, as a requirement: `NAME @ git+https://HOST/PATH@COMMIT`."""

    line: str

    @property
    def name(self) -> str:
        return canonicalize_name(self.line.partition(" @ ")[0])

    @property
    def url(self) -> str:
        return self.line.partition(" @ git+")[2].rpartition("@")[0]

    @property
    def id(self) -> str:
        return self.line.rpartition("@")[2]


@dataclass(frozen=True)
class Requirements:
    """Requirements by normalised name, files of this machine, and commits."""

    lines: dict[str, str]
    files: tuple[Path, ...] = ()
    commits: tuple[Commit, ...] = ()


def read(path: Path) -> Requirements:
    """Read a requirements file. Raises BadInputError that names the line and the fix."""
    try:
        text = reading.text(path, str(path), most=reading.WRITTEN)
    except FileNotFoundError as error:
        raise errors.BadInputError(
            f"{path} does not exist", next_step=f"write your requirements into {word(path)}"
        ) from error
    lines: dict[str, str] = {}
    files: list[Path] = []
    commits: list[Commit] = []
    for number, line in _lines(text):
        where = f"{path}, line {number}"
        if line.startswith("-"):
            raise _option(where, line)
        if "git+" in line:
            commits.append(commit := _commit(where, line))
            name, line = commit.name, commit.name
        elif line.endswith(ARCHIVES) and "@" not in line:
            files.append(file := _file(where, path, line))
            line = _pin_of(where, file)
            name = canonicalize_name(Requirement(line).name)
        else:
            name = _name(where, line)
        if name in lines:
            raise errors.BadInputError(f"{where}: {name} is there twice", next_step="leave one of the two lines")
        lines[name] = line
    return Requirements(lines, tuple(files), tuple(commits))


def _lines(text: str) -> list[tuple[int, str]]:
    """The lines that say something, with their numbers; one that ends with a backslash goes on in the next."""
    joined, begun = [], ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = begun + re.sub(r"(^|\s)#.*$", "", raw).strip()
        begun = line[:-1] if line.endswith("\\") else ""
        if line and not begun:
            joined.append((number, line))
    return joined


def _option(where: str, line: str) -> errors.BadInputError:
    option = line.split()[0].partition("=")[0]
    for pattern, what, fix in OPTIONS:
        if pattern.match(option):
            return errors.BadInputError(f"{where}: {option} {what}", next_step=fix)
    return errors.BadInputError(f"{where}: {option} is an option of pip's", next_step="leave it out")


def _name(where: str, line: str) -> str:
    try:
        requirement = Requirement(line)
    except InvalidRequirement as error:
        shown = PASSWORD.sub("//***@", line)[:80]
        raise errors.BadInputError(
            f"{where}: {shown!r} is not a requirement", cause="--hash and other options of pip's are not read",
            next_step="write NAME, NAME==1.2 or NAME>=1.2",
        ) from error  # fmt: skip
    if requirement.url:
        raise errors.BadInputError(
            f"{where}: {requirement.name} is named by its address, which a lock does not keep",
            next_step=f"download it, and name the file; or a commit: {word(requirement.name)} @ git+https://HOST/PATH@COMMIT",
        )
    return canonicalize_name(requirement.name)


def _commit(where: str, line: str) -> Commit:
    shown = PASSWORD.sub("//***@", line)
    if re.search(r"//(?!git@)[^/@\s]+@", line):
        raise errors.BadInputError(
            f"{where}: {shown[:80]!r} has a name or a password in its address, which would be kept",
            next_step="put it into ~/.netrc or git's credential helper, and take it out of the line",
        )
    if GIT.fullmatch(line):
        return Commit(line)
    name, _, address = line.replace("//git@", "//").partition("git+")
    revision = address.partition("#")[0].partition("@")[2].strip()
    if not revision:
        what = "names no commit"
    elif COMMIT.fullmatch(revision):
        what = f"is not of the form NAME @ git+https://HOST/PATH@{revision[:8]}…"
    else:
        what = f"names {revision}, a branch, a tag or a short hash: tomorrow it may be another commit"
    raise errors.BadInputError(
        f"{where}: {name.rstrip(' @') or 'the line'} {what}",
        next_step=f"git ls-remote URL{f' {word(revision)}' if revision else ''}"
        ", then NAME @ git+https://HOST/PATH@COMMIT with all 40 digits",
    )


def _file(where: str, path: Path, line: str) -> Path:
    file = path.parent / line.removeprefix("file://")
    if not file.is_file():
        raise errors.BadInputError(
            f"{where}: {line} does not exist beside {path.name}", next_step=f"ls {word(file.parent)}"
        )
    return file


def _pin_of(where: str, file: Path) -> str:
    try:
        name, version = (parse_wheel_filename if file.suffix == ".whl" else parse_sdist_filename)(file.name)[:2]
    except (InvalidWheelFilename, InvalidSdistFilename) as error:
        raise errors.BadInputError(
            f"{where}: {file.name} is not named as a wheel or a source archive is", next_step="build it with `uv build`"
        ) from error
    return f"{name}=={version}"
