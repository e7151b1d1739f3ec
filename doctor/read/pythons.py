"""The environment of a Python: of an interpreter, a virtual environment, a site-packages folder, or this process."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from doctor.read import environment, files, interpreters
from doctor.read.environment import Environment, Problem
from doctor.read.files import UnreadableError

SETTINGS = 64 * 1024  # bytes of a pyvenv.cfg


def of_path(path: str) -> Environment:
    """The environment of an interpreter, of a virtual environment or of a folder. Raises UnreadableError."""
    located = path if os.sep in path or files.is_folder(path) else shutil.which(path) or path
    target = Path(os.path.expanduser(located))  # noqa: PTH111
    is_folder = files.is_folder(target)
    root = target if is_folder else target.parent.parent
    executable = _executable(root) if is_folder else target
    if not is_folder and not files.exists(target):
        raise UnreadableError(f"{target} does not exist")
    try:
        settings, problem = _settings(root / "pyvenv.cfg")
    except FileNotFoundError:
        result = _of_folder(path, target, executable) if is_folder else _of_interpreter(path, target)
    else:
        result = _of_virtual_environment(path, root, settings, problem)
    result.executable = None if executable is None else _for_commands(executable)
    if executable is None and (python := _python_of(target)) is not None:
        result.command_python = _for_commands(python)
    return result


def of_this_process() -> Environment:
    """The environment that this very Python runs in."""
    archive = Path(os.path.abspath(sys.argv[0]))  # noqa: PTH100
    folders = [Path(entry) for entry in sys.path if entry and Path(entry) != archive.parent]
    version = "{}.{}.{}".format(*sys.version_info[:3])
    result = environment.of_folders(f"this Python, {sys.executable}", folders, version)
    result.executable = sys.executable
    result.include = Path(sysconfig.get_paths()["include"])
    return result


def _of_virtual_environment(path: str, root: Path, settings: dict[str, str], problem: str) -> Environment:
    version = settings.get("version") or settings.get("version_info") or ""
    match = re.match(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?", version)
    home = settings.get("home", "")
    layout = interpreters.of_environment(root, home, match.group() if match else None)
    result = environment.of_folders(f"the Python {path}", layout.folders, layout.python)
    result.include = layout.include
    if problem:
        result.unread.append(Problem("pyvenv.cfg", problem))
    if settings.get("include-system-site-packages", "").lower() == "true" and home:
        minor = interpreters.minor_of(layout.python) if layout.python else None
        # A file of the environment names this Python, so its folders are read and it is never run.
        base = interpreters.of_prefix(Path(home).parent, minor) if Path(home).is_absolute() else None
        if base is None:
            result.complete = False
            result.unread.append(Problem("pyvenv.cfg", f"names {home[:200]} as its Python's home: there is none"))
        else:
            for package in environment.of_folders("", base.folders).packages.values():
                result.add(package)
    return result


def _of_folder(path: str, folder: Path, executable: Path | None) -> Environment:
    try:
        names, _ = files.names(folder)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    if any(name.endswith(".dist-info") for name in names):
        match = re.search(r"python(3\.\d{1,3})", str(folder))
        return environment.of_folders(f"the folder {path}", [folder], match[1] if match else None)
    layout = interpreters.of_prefix(folder)
    if layout is None and executable is None:
        raise UnreadableError(f"{path} is a folder with no Python and nothing installed in it")
    if layout is None:
        raise UnreadableError(
            f"{path} does not have the folders of a Python, and only an interpreter that you name yourself is run; "
            f"if it is safe to run: --python {executable}"
        )
    return _of_layout(f"the Python {executable or path}", layout)


def _of_interpreter(path: str, executable: Path) -> Environment:
    layout = interpreters.of_file(executable) or interpreters.ask(executable)
    return _of_layout(f"the Python {executable or path}", layout)


def _of_layout(title: str, layout: interpreters.Layout) -> Environment:
    result = environment.of_folders(title, layout.folders, layout.python)
    result.include = layout.include
    return result


def _settings(path: Path) -> tuple[dict[str, str], str]:
    """The settings in a pyvenv.cfg, and what is wrong with it (empty for nothing). Raises FileNotFoundError."""
    try:
        data, more = files.head(path, SETTINGS)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FileNotFoundError from error
    except OSError as error:
        return {}, f"cannot be read: {files.why(error)}"
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").splitlines())
    settings = {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}
    return settings, f"is larger than {SETTINGS // 1024} KB: the rest of it was not read" if more else ""


def _executable(root: Path) -> Path | None:
    candidates = (root / name for name in ("bin/python3", "bin/python", "Scripts/python.exe"))
    return next((path for path in candidates if files.exists(path)), None)


def _python_of(folder: Path) -> Path | None:
    """The Python of the virtual environment that a site-packages folder is of: three levels up, on Windows two."""
    above = Path(os.path.abspath(folder)).parents  # noqa: PTH100
    roots = (root for root in (*above[1:2], *above[2:3]) if files.exists(root / "pyvenv.cfg"))
    return next((python for root in roots if (python := _executable(root)) is not None), None)


def _for_commands(executable: Path) -> str | None:
    """A path as an argument of a command; None where nobody could type it."""
    text = str(executable)
    return (f"./{text}" if text.startswith("-") else text) if text.isprintable() else None
