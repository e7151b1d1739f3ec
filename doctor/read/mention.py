"""The environment that an error names by the paths of its traceback, where it is on this machine.

A log may be anybody's: the folders that it names are read, and nothing in them is ever run.
"""

from __future__ import annotations

import os
from pathlib import Path

from doctor.read import files, pythons, symptoms
from doctor.read.environment import Environment, Problem
from doctor.read.files import UnreadableError

MOST = 20  # folders, and files of each, that are looked for


def of_error(text: str) -> tuple[Environment | None, Problem | None]:
    """The environment of the first folder that can be read, and else the first that is here and cannot be."""
    problem: Problem | None = None
    for folder in symptoms.package_folders(text)[:MOST]:
        result = _of_folder(text, folder)
        if isinstance(result, Environment):
            return result, None
        problem = problem or result
    return None, problem


def _of_folder(text: str, folder: str) -> Environment | Problem | None:
    """The environment of a folder, or why it cannot be read; None where it is not on this machine."""
    try:
        return _environment(Path(folder)) if _is_here(text, folder) else None
    except OSError as error:
        return Problem(folder, f"cannot be read: {files.why(error)}")
    except UnreadableError as error:
        return Problem(folder, f"cannot be read: {error}")


def _is_here(text: str, folder: str) -> bool:
    """Is one of the files that the error names on this machine? A folder of that name is in every image.

    Raises OSError where that cannot be known.
    """
    if not os.path.isabs(folder):  # noqa: PTH117
        return False
    return any(map(_exists, symptoms.package_files(text, folder)[:MOST]))


def _exists(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return True


def _environment(folder: Path) -> Environment:
    """What is installed in a folder of packages, and in those that belong to it. Raises UnreadableError."""
    environment = _of_root(folder)
    if environment is None:
        environment = pythons.of_path(str(folder))
        environment.complete = False  # there may be other folders, which the log does not name
    if not environment.packages:
        why = environment.broken[0].what if environment.broken else "nothing is installed in it"
        raise UnreadableError(why)
    # An environment that a log names is never run, neither here nor by --measure.
    environment.command_python = environment.executable or environment.command_python
    environment.executable = None
    return environment


def _of_root(folder: Path) -> Environment | None:
    """The whole environment that a folder of packages belongs to: three levels up, on Windows two."""
    for root in folder.parents[1:3]:
        if not files.exists(root / "pyvenv.cfg") and not files.is_folder(root / "lib"):
            continue
        try:
            environment = pythons.of_path(str(root))  # of a folder: its Python is not run
        except UnreadableError:
            continue
        if has(environment, str(folder)):
            environment.title = f"the environment that the error names, {root}"
            return environment
    return None


def has(environment: Environment, folder: str) -> bool:
    """Is it one of an environment's own folders?"""
    return os.path.realpath(folder) in {os.path.realpath(own) for own in environment.folders}
