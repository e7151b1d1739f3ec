"""The environment that an error names by the paths of its traceback, where it is on this machine.

A log may be anybody's: the folders that it names are read, and nothing in them is ever run.
"""

from __future__ import annotations

import os
from pathlib import Path

from doctor.read import files, pythons, symptoms
from doctor.read.environment import Environment, Problem
from doctor.read.files import UnreadableError


def of_error(text: str) -> tuple[Environment | None, Problem | None]:
    """The environment of the first folder that can be read, and else the first that is here and cannot be."""
    problem: Problem | None = None
    for folder in symptoms.package_folders(text):
        if not os.path.isabs(folder):  # noqa: PTH117
            continue
        try:
            os.stat(folder)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue  # it is on another machine
        except OSError as error:
            problem = problem or Problem(folder, f"cannot be read: {files.why(error)}")
            continue
        try:
            return _environment(Path(folder)), None
        except UnreadableError as error:
            problem = problem or Problem(folder, f"cannot be read: {error}")
    return None, problem


def _environment(folder: Path) -> Environment:
    """What is installed in a folder of packages, and in those that belong to it. Raises UnreadableError."""
    found = _of_root(folder)
    if found is None:
        found = pythons.of_path(str(folder))
        found.complete = False  # there may be other folders, which the log does not name
    if not found.packages:
        why = found.broken[0].what if found.broken else "nothing is installed in it"
        raise UnreadableError(why)
    # An environment that a log names is never run, neither here nor by --measure.
    found.command_python = found.executable or found.command_python
    found.executable = None
    return found


def _of_root(folder: Path) -> Environment | None:
    """The whole environment that a folder of packages belongs to: three levels up, on Windows two."""
    for root in folder.parents[1:3]:
        if not files.exists(root / "pyvenv.cfg") and not files.is_folder(root / "lib"):
            continue
        try:
            found = pythons.of_path(str(root))  # of a folder: its Python is not run
        except UnreadableError:
            continue
        if has(found, str(folder)):
            found.title = f"the environment that the error names, {root}"
            return found
    return None


def has(environment: Environment, folder: str) -> bool:
    """Is it one of an environment's own folders?"""
    return os.path.realpath(folder) in {os.path.realpath(own) for own in environment.folders}
