"""The packages that are installed, read from the metadata in a Python's folders.

Nothing of the environment is imported or run. All of it may lie, so everything that is read has a limit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from doctor.read import distributions, files
from doctor.read.distributions import Budget, Package

MOST = 5000  # distributions in one folder


class Problem(NamedTuple):
    """A package, a file or a folder, and what is wrong with it as a phrase: "cannot be listed"."""

    where: str
    what: str


@dataclass
class Environment:
    """Packages by normalised name, and what else the folders or the list tell."""

    title: str  # for the report: "the Python /opt/venv"
    packages: dict[str, Package] = field(default_factory=dict)
    complete: bool = False  # a package that is not listed is not installed
    python: str | None = None  # 3.11.2, or 3.11
    executable: str | None = None  # as a command names it
    command_python: str | None = None  # of a site-packages folder that was named: for printed commands, never run
    include: Path | None = None  # the folder that Python.h belongs in
    folders: tuple[Path, ...] = ()
    broken: list[Problem] = field(default_factory=list)  # installations that were interrupted or doubled
    unread: list[Problem] = field(default_factory=list)  # what was not read, or not to its end

    def version(self, name: str) -> str | None:
        """The version of a package, or the range that a requirements file leaves open; None where it is not listed."""
        package = self.packages.get(name)
        return package.version if package else None

    @property
    def program_folders(self) -> list[Path]:
        """Folders whose programs came with these packages, and so are not the machine's own."""
        folders = [*self.folders, *(folder.parents[2] / "bin" for folder in self.folders if len(folder.parents) > 2)]
        folders += [Path(self.executable).parent] if self.executable else []
        return [folder for folder in folders if os.path.realpath(folder) != "/usr/bin"]

    def add(self, package: Package) -> None:
        """The first folder on the path wins, as it does for Python."""
        self.packages.setdefault(package.name, package)


def of_folders(title: str, folders: Iterable[Path], python: str | None = None) -> Environment:
    """Every distribution with metadata in these folders."""
    existing: list[Path] = []
    for folder in folders:
        if files.is_folder(folder) and not any(_same(folder, other) for other in existing):
            existing.append(folder)
    environment = Environment(title, complete=True, python=python, folders=tuple(existing))
    budget = Budget()
    for folder in existing:
        _read_folder(environment, folder, budget)
    return environment


def _read_folder(environment: Environment, folder: Path, budget: Budget) -> None:
    try:
        names, more = files.names(folder)
    except OSError as error:
        environment.complete = False
        environment.broken.append(Problem(str(folder), f"cannot be listed: {files.why(error)}"))
        return
    infos = [name for name in names if name.endswith((".dist-info", ".egg-info"))]
    if more or len(infos) > MOST:
        environment.complete = False
        limit = len(names) if more else MOST
        environment.unread.append(Problem(str(folder), f"has more than {limit} entries: not all of them were read"))
    versions: dict[str, str] = {}
    for info in infos[:MOST]:
        package, problem = distributions.read(folder, info, budget)
        if problem:
            environment.broken.append(Problem(info, problem))
        if package is None:
            continue
        other = versions.get(package.name, package.version)
        if other != package.version:
            environment.broken.append(Problem(package.name, f"is there twice: {other} and {package.version}"))
        versions[package.name] = package.version
        environment.add(package)
    if budget.requires <= 0 or budget.heads <= 0:
        environment.unread.append(
            Problem(str(folder), "has more metadata than any environment needs: not all of it was read")
        )
    environment.broken += [
        Problem(name, "was left behind by an interrupted uninstall")
        for name in names
        if name.startswith("~") and len(name) > 2
    ]


def _same(folder: Path, other: Path) -> bool:
    try:
        return folder.samefile(other)
    except (OSError, ValueError):
        return False
