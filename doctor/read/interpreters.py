"""Where a Python keeps what is installed: read from how its folders lie, so that it need not be run.

Only a file that the user named is ever run, and only where its folders do not lie as a Python's do (a shim of pyenv).
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from doctor.read import files, programs
from doctor.read.files import UnreadableError

SECONDS, MOST_SAID = 20, 64 * 1024
LARGEST = 64 * 1024 * 1024  # bytes of an interpreter that its version is looked for in
NAMED = re.compile(r"(?:python|pypy)(?:3(?:\.(?P<minor>\d{1,3}))?)?[dmtw]*(?:\.exe)?")
FOLDER = re.compile(r"python(3\.\d{1,3})t?")
ASK = """\
import json, os, site, sys, sysconfig
folders = [sysconfig.get_paths()[key] for key in ("purelib", "platlib")]
try:
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE is not False: folders.append(site.getusersitepackages())
except Exception: pass
print(json.dumps({"folders": folders, "python": "%d.%d.%d" % sys.version_info[:3],
    "include": sysconfig.get_paths()["include"]}))
"""


@dataclass(frozen=True)
class Layout:
    folders: tuple[Path, ...]
    python: str | None
    include: Path | None


def of_file(executable: Path) -> Layout | None:
    """The layout that belongs to an interpreter, from the folders beside it; None where they are no Python's."""
    real = Path(os.path.realpath(executable))
    named = [match for match in (NAMED.fullmatch(one.name) for one in (real, executable)) if match]
    if not named:
        return None
    minor = next((f"3.{match['minor']}" for match in named if match["minor"]), None)
    found = (of_prefix(one.parent.parent, minor, real) for one in (real, executable))
    return next((one for one in found if one is not None), None)


def of_prefix(prefix: Path, minor: str | None = None, executable: Path | None = None) -> Layout | None:
    """The layout of a Python that is installed there; None where there is none, or several and nobody said which."""
    libraries = [one for one in (prefix / "lib", prefix / "lib64") if files.is_folder(one)]
    found = {match[1]: folder for library in libraries for folder in files.matching(library, "python3.*")
             if (match := FOLDER.fullmatch(folder.name)) and _holds(folder)}  # fmt: skip
    if minor is None:
        real = NAMED.fullmatch(Path(os.path.realpath(prefix / "bin" / "python3")).name)
        minor = f"3.{real['minor']}" if real and real["minor"] else next(iter(found)) if len(found) == 1 else None
    if minor is None or minor not in found:
        return None
    own = found[minor].name
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
    """The layout of a virtual environment: its own folders, and where the headers of its Python would lie."""
    libraries = files.matching(root, "lib*")
    folders = [one / "site-packages" for library in libraries for one in files.matching(library, "python3*")]
    found = [one for one in (*folders, root / "Lib" / "site-packages") if files.is_folder(one)]
    if python is None:
        python = next((match[1] for match in (FOLDER.fullmatch(one.parent.name) for one in found) if match), None)
    include = Path(home).parent / "include" / f"python{minor_of(python)}" if home and python else None
    return Layout(tuple(found), python, include)


def minor_of(python: str) -> str:
    return ".".join(python.split(".")[:2])


def asked(executable: Path) -> Layout:
    """Ask an interpreter that the user named. -I and -S: nothing of its environment is run. Raises UnreadableError."""
    try:
        with files.opened(executable):
            pass
    except FileNotFoundError as error:
        raise UnreadableError(f"{executable} does not exist") from error
    except OSError as error:
        raise UnreadableError(f"{executable} does not answer like a Python: {files.why(error)}") from error
    try:
        said = json.loads(programs.ask([os.path.abspath(executable), "-I", "-S", "-c", ASK], SECONDS, MOST_SAID))  # noqa: PTH100
        folders, python, include = said["folders"], said["python"], said["include"]
        if not all(isinstance(one, str) for one in (*folders, python, include)):
            raise TypeError
        if not re.fullmatch(r"\d{1,3}\.\d{1,3}\.\d{1,3}", python):
            raise ValueError
    except programs.NoAnswerError as error:
        raise UnreadableError(f"{executable} does not answer like a Python: it {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableError(f"{executable} does not answer like a Python") from error
    return Layout(tuple(map(Path, folders[:20])), python, Path(include))


def _holds(folder: Path) -> bool:
    return files.is_file(folder / "os.py") or files.is_folder(folder / "site-packages")


def _version(prefix: Path, minor: str, executable: Path | None) -> str | None:
    """The whole version, from Python's headers or out of its library or its interpreter."""
    header = files.text(prefix / "include" / f"python{minor}" / "patchlevel.h", 65536)
    said = re.search(r'#define PY_VERSION\s+"(3\.\d{1,3}\.\d{1,3})', header)
    if said and minor_of(said[1]) == minor:
        return said[1]
    pattern = re.compile(rb"\0(" + re.escape(minor).encode() + rb"\.\d{1,3})(?:(?:a|b|rc)\d{1,2})?\+?\0")
    for file in (executable or prefix / "bin" / f"python{minor}", *(prefix / one / f"libpython{minor}.so.1.0"
                                                                    for one in ("lib", "lib64"))):  # fmt: skip
        try:
            match = pattern.search(files.head(file, LARGEST)[0])
        except OSError:
            continue
        if match:
            return match[1].decode()
    return None
