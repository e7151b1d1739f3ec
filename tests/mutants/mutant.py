"""Mutants as data: read, validated, found in an environment, and made there."""

from __future__ import annotations

import ast
import difflib
import glob
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Annotated

from packaging.utils import canonicalize_name
from pydantic import AfterValidator, Field

from builder.base import errors, tomlfile
from builder.base.tomlfile import Table


def _nonempty(value: str) -> str:
    if not value.strip():
        raise ValueError("must say something")
    return value


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or "\\" in value or not path.parts:
        raise ValueError(f"{value!r} leaves the package: write a path inside its folder, without ..")
    return str(path)


class Mutant(Table):
    """One change: where `find` stands, exactly once, in a file of a package, `replace` stands instead.

    `why` says what is wrong then. `survives` is for one that is known to survive: why no probe can notice it.
    `equivalent` is for one that changes nothing about training, and why: it is neither run nor counted.
    """

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
    package: Annotated[str, AfterValidator(_nonempty)]
    file: Annotated[str, AfterValidator(_inside)]
    find: Annotated[str, AfterValidator(_nonempty)]
    replace: str
    why: Annotated[str, AfterValidator(_nonempty)]
    survives: str = ""
    equivalent: str = ""

    def digest(self) -> str:
        """The identity of the change itself; how it is named and explained does not count."""
        identity = hashlib.sha256()
        for part in (self.package, self.file, self.find, self.replace):
            identity.update(f"{len(part.encode())}\0{part}".encode())
        return identity.hexdigest()


class _List(Table):
    mutant: Annotated[list[Mutant], Field(min_length=1)]


@dataclass(frozen=True)
class Placed:
    """A mutant whose file was found: the file, relative to site-packages, and what it holds afterwards."""

    mutant: Mutant
    file: PurePosixPath
    content: bytes


def load(path: Path, where: str) -> list[Mutant]:
    """Read and validate a list. Raises BadInputError that names the file (`where`), the key and the fix."""
    try:
        mutants = tomlfile.read(_List, path, where).mutant
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{where} does not exist", next_step="--file with the list's path") from error
    ids = [mutant.id for mutant in mutants]
    for number, name in enumerate(ids):
        if name in ids[:number]:
            raise errors.BadInputError(
                f"{where}: `mutant[{number}].id`: {name} is there twice", next_step=f"rename one of them in {where}"
            )
        if mutants[number].find == mutants[number].replace:
            raise errors.BadInputError(
                f"{where}: `mutant[{number}].replace` ({name}): the same as `find`, so nothing changes",
                next_step=f"correct it in {where}",
            )
    return mutants


def place(mutants: Sequence[Mutant], site_packages: Path, locked: Mapping[str, str], where: str) -> list[Placed]:
    """Find the one place of every mutant in an environment. Raises BadInputError for the first that has none.

    `locked` is what the lock holds: normalised name to version.
    """
    installed = _installed(site_packages, locked)
    return [_place(mutant, site_packages, installed, locked, where) for mutant in mutants]


def _place(
    mutant: Mutant, site_packages: Path, installed: Mapping[str, frozenset[str]], locked: Mapping[str, str], where: str
) -> Placed:
    def bad(key: str, what: str) -> errors.BadInputError:
        return errors.BadInputError(
            f"{where}: `{key}` of {mutant.id}: {what}", next_step=f"correct `{key}` of {mutant.id} in {where}"
        )

    owners = _owners(mutant.package, installed)
    if not owners:
        close = difflib.get_close_matches(mutant.package, sorted({*installed, *_folders(installed)}), n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise bad("package", f"{mutant.package} is neither a distribution in the lock nor a folder of one{hint}")
    distributions = ", ".join(f"{name} {locked[name]}" for name in owners)
    files = frozenset().union(*(installed[name] for name in owners))
    file = _find_file(mutant, files)
    if file is None:
        same = sorted(name for name in files if PurePosixPath(name).name == PurePosixPath(mutant.file).name)[:3]
        raise bad(
            "file", f"{distributions} has no file {mutant.file}" + (f"; it has {', '.join(same)}" if same else "")
        )
    try:
        text = (site_packages / file).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise bad("file", f"{file} of {distributions} is not UTF-8 text") from error
    count = text.count(mutant.find)
    if count != 1:
        what = "is not there" if count == 0 else f"stands there {count} times"
        raise bad("find", f"must stand exactly once in {file} of {distributions}, and {what}")
    changed = text.replace(mutant.find, mutant.replace)
    if file.suffix == ".py":
        try:
            ast.parse(changed)
        except SyntaxError as error:
            raise bad("replace", f"{file} is no Python any more, line {error.lineno}: {error.msg}") from error
    return Placed(mutant, file, changed.encode())


def _installed(site_packages: Path, locked: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The files of every locked distribution, relative to site-packages, by its normalised name."""
    return {
        name: frozenset(
            str(file) for file in distribution.files or () if ".." not in file.parts and not file.is_absolute()
        )
        for distribution in metadata.distributions(path=[str(site_packages)])
        if (name := canonicalize_name(distribution.metadata["Name"])) in locked
    }


def _folders(installed: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for files in installed.values():
        yield from {PurePosixPath(file).parts[0] for file in files if "/" in file and ".dist-info/" not in file}


def _owners(package: str, installed: Mapping[str, frozenset[str]]) -> list[str]:
    """The distributions meant by a name: one's own name, or that of a folder or module that is imported from it."""
    if (name := canonicalize_name(package)) in installed:
        return [name]
    module = f"{package}.py"
    return [
        name
        for name, files in installed.items()
        if module in files or any(file.startswith(f"{package}/") for file in files)
    ]


def _find_file(mutant: Mutant, files: frozenset[str]) -> PurePosixPath | None:
    """The file, looked for inside the package's folder first, then relative to site-packages."""
    tops = sorted({PurePosixPath(file).parts[0] for file in files if "/" in file})
    own = mutant.package.replace("-", "_")
    for folder in (own, mutant.package, *tops):
        if f"{folder}/{mutant.file}" in files:
            return PurePosixPath(folder, mutant.file)
    return PurePosixPath(mutant.file) if mutant.file in files else None


def clone(environment: Path, target: Path) -> None:
    """A copy of an environment that shares its files: nothing in it may be written to, only replaced."""
    shutil.copytree(environment, target, symlinks=True, copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another disk, or one without hard links
        shutil.copy2(source, target, follow_symlinks=False)


def make(placed: Placed, site_packages: Path) -> None:
    """Make the change in a clone: a new file in the place of the shared one, and no bytecode of the old."""
    path = site_packages / placed.file
    beside = _beside(path)
    beside.write_bytes(placed.content)
    shutil.copymode(path, beside)
    beside.replace(path)
    _forget_bytecode(path)


def undo(placed: Placed, site_packages: Path, original: Path) -> None:
    """Share the file with the `original` site-packages again, and leave no bytecode of the mutant."""
    path = site_packages / placed.file
    beside = _beside(path)
    _link(str(original / placed.file), str(beside))
    beside.replace(path)
    _forget_bytecode(path)


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.mutant")


def _forget_bytecode(path: Path) -> None:
    # It may be trusted by the source's time and size, or without looking at the source at all.
    for compiled in (path.parent / "__pycache__").glob(f"{glob.escape(path.stem)}.*.pyc"):
        with suppress(FileNotFoundError):
            compiled.unlink()
