"""Where a Python keeps its packages, read from the folders beside it, so that it need not be run.

Only an interpreter that the user named is ever run, and only where the folders beside it are not a Python's (a pyenv
shim).
"""

from __future__ import annotations

import json
import os
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path

from doctor.read import files, programs
from doctor.read.files import UnreadableError


class SilentError(UnreadableError):
    """A Python that the user named was run, and did not answer; `what` says how."""

    def __init__(self, executable: Path, what: str) -> None:
        super().__init__(f"{executable} does not answer like a Python: it {what}")
        self.executable, self.what = executable, what


SECONDS, OUTPUT = 20, 64 * 1024  # limits on an interpreter that is run
LARGEST = 64 * 1024 * 1024  # bytes of an interpreter that are searched for its version
INTERPRETER = re.compile(r"(?:python|pypy)(?:3(?:\.(?P<minor>\d{1,3}))?)?[dmtw]*(?:\.exe)?")
FOLDER = re.compile(r"python(3\.\d{1,3})t?")


@dataclass(frozen=True)
class Layout:
    """The folders of a Python's packages, its version (3.11.2 or 3.11), and the folder of its headers."""

    folders: tuple[Path, ...]
    python: str | None
    include: Path | None


def of_file(executable: Path) -> Layout | None:
    """The layout of an interpreter, from the folders beside it; None where those are not a Python's."""
    real = Path(os.path.realpath(executable))
    matches = [match for match in (INTERPRETER.fullmatch(path.name) for path in (real, executable)) if match]
    if not matches:
        return None
    minor = next((f"3.{match['minor']}" for match in matches if match["minor"]), None)
    layouts = (of_prefix(path.parent.parent, minor, real) for path in (real, executable))
    return next((layout for layout in layouts if layout is not None), None)


def of_prefix(prefix: Path, minor: str | None = None, executable: Path | None = None) -> Layout | None:
    """The layout of the Python in a prefix; None where there is none, or several and no `minor` (3.11) chooses."""
    libraries = [folder for folder in (prefix / "lib", prefix / "lib64") if files.is_folder(folder)]
    homes = {match[1]: folder for library in libraries for folder in files.matching(library, "python3.*")
             if (match := FOLDER.fullmatch(folder.name)) and _is_home(folder)}  # fmt: skip
    if minor is None:
        real = INTERPRETER.fullmatch(Path(os.path.realpath(prefix / "bin" / "python3")).name)
        minor = f"3.{real['minor']}" if real and real["minor"] else next(iter(homes)) if len(homes) == 1 else None
    if minor is None or minor not in homes:
        return None
    own = homes[minor].name
    folders = [library / own / "site-packages" for library in libraries]
    if files.is_folder(prefix / "lib" / "python3" / "dist-packages"):  # Debian's
        folders += [prefix / "local" / "lib" / own / "dist-packages", prefix / "lib" / "python3" / "dist-packages",
                    prefix / "lib" / own / "dist-packages"]  # fmt: skip
    if prefix == Path("/usr"):  # Fedora's
        folders += [Path("/usr/local") / library.name / own / "site-packages" for library in libraries]
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    folders += [home / ".local/lib" / own / "site-packages", home / f"Library/Python/{minor}/lib/python/site-packages"]
    version = _version(prefix, minor, executable) or minor
    return Layout(tuple(folders), version, prefix / "include" / own)


def of_environment(root: Path, home: str, python: str | None) -> Layout:
    """The layout of a virtual environment. `home` and `python` are what its pyvenv.cfg says of its Python."""
    libraries = files.matching(root, "lib*")
    homes = [home for library in libraries for home in files.matching(library, "python3*")]
    candidates = (*(folder / "site-packages" for folder in homes), root / "Lib" / "site-packages")  # and Windows'
    folders = [folder for folder in candidates if files.is_folder(folder)]
    if python is None:
        matches = (FOLDER.fullmatch(folder.parent.name) for folder in folders)
        python = next((match[1] for match in matches if match), None)
    include = Path(home).parent / "include" / f"python{minor_of(python)}" if home and python else None
    return Layout(tuple(folders), python, include)


def minor_of(python: str) -> str:
    """3.11 of 3.11.2."""
    return ".".join(python.split(".")[:2])


def ask(executable: Path) -> Layout:
    """Run an interpreter that the user named. -I and -S: it runs nothing of its environment. Raises UnreadableError.

    One that is run and does not answer is a SilentError.
    """
    program = pkgutil.get_data("doctor.read", "layout_program.py")
    assert program is not None
    try:
        with files.opened(executable):
            pass
    except FileNotFoundError as error:
        raise UnreadableError(f"{executable} does not exist") from error
    except OSError as error:
        raise UnreadableError(f"{executable} does not answer like a Python: {files.why(error)}") from error
    try:
        argv = [os.path.abspath(executable), "-I", "-S", "-c", program.decode()]  # noqa: PTH100
        printed = programs.ask(argv, SECONDS, OUTPUT)
        answer = json.loads(printed)
        folders, python, include = answer["folders"], answer["python"], answer["include"]
        if not all(isinstance(text, str) for text in (*folders, python, include)):
            raise TypeError
        if not re.fullmatch(r"\d{1,3}\.\d{1,3}\.\d{1,3}", python):
            raise ValueError
    except programs.NoAnswerError as error:
        raise SilentError(executable, str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = "prints something else than what it was asked" if printed.strip() else "ends and prints nothing"
        raise SilentError(executable, what) from error
    return Layout(tuple(map(Path, folders[:20])), python, Path(include))


def _is_home(folder: Path) -> bool:
    """Does a Python keep its library or its packages there?"""
    return files.is_file(folder / "os.py") or files.is_folder(folder / "site-packages")


def _version(prefix: Path, minor: str, executable: Path | None) -> str | None:
    """The version with its patch number, from Python's headers, its interpreter or its library."""
    header = files.text(prefix / "include" / f"python{minor}" / "patchlevel.h", 65536)
    define = re.search(r'#define PY_VERSION\s+"(3\.\d{1,3}\.\d{1,3})', header)
    if define and minor_of(define[1]) == minor:
        return define[1]
    pattern = re.compile(rb"\0(" + re.escape(minor).encode() + rb"\.\d{1,3})(?:(?:a|b|rc)\d{1,2})?\+?\0")
    for file in (executable or prefix / "bin" / f"python{minor}", *(prefix / library / f"libpython{minor}.so.1.0"
                                                                    for library in ("lib", "lib64"))):  # fmt: skip
        try:
            match = pattern.search(files.head(file, LARGEST)[0])
        except OSError:
            continue
        if match:
            return match[1].decode()
    return None
