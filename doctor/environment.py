"""What is installed: read from the metadata of a Python's folders, or from a freeze, a lock or a list of requirements.

Nothing is imported and nothing of the environment is run, but the interpreter that is asked where its folders are,
with its site module switched off.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from doctor import versions

HEAD = 512 * 1024  # bytes of a METADATA that are read: its header is shorter
MOST = 5000  # distributions in one folder
LARGEST = 8 * 1024 * 1024  # bytes of a list of requirements
DIST = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>[0-9][^-]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info")
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*===?\s*(?P<version>[^\s;,\\#]+)")
COLUMNS = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s+(?P<version>v?\d[A-Za-z0-9.+!_]*)(?:\s|$)")
FILE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-[^/]*)?\.(?:whl|tar\.gz)")
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


class UnreadableError(Exception):
    """What was named cannot be looked at; the message says why."""


@dataclass(frozen=True)
class Package:
    """One distribution: its normalised name, its version (or the range that a file leaves open), and its metadata."""

    name: str
    version: str
    folder: Path | None = None  # that its files lie in
    info: Path | None = None  # its .dist-info
    requires: tuple[str, ...] = ()
    requires_python: str = ""


@dataclass
class Environment:
    title: str
    packages: dict[str, Package] = field(default_factory=dict)
    whole: bool = False  # what is not among the packages is not installed
    python: str | None = None
    executable: str | None = None
    include: Path | None = None  # where Python.h would lie
    folders: tuple[Path, ...] = ()
    trouble: list[tuple[str, str]] = field(default_factory=list)  # package or folder, and what is wrong with it

    def version(self, name: str) -> str | None:
        found = self.packages.get(name)
        return found.version if found else None

    def add(self, package: Package) -> None:
        """The first folder on the path wins, as it does for Python."""
        self.packages.setdefault(package.name, package)


def of_folders(title: str, folders: Iterable[Path], python: str | None = None) -> Environment:
    """Everything whose metadata lies in these folders."""
    real: list[Path] = []
    for folder in folders:
        if folder.is_dir() and not any(_same(folder, other) for other in real):
            real.append(folder)
    found = Environment(title, whole=True, python=python, folders=tuple(real))
    for folder in real:
        _read_folder(found, folder)
    return found


def of_python(path: str) -> Environment:
    """The environment of an interpreter, or of the folder of a virtual environment."""
    asked = Path(path).expanduser()
    root = asked if asked.is_dir() else asked.parent.parent
    settings = _pyvenv(root / "pyvenv.cfg")
    executable = asked if not asked.is_dir() else _executable(asked)
    if settings is not None:
        folders = [*sorted(root.glob("lib*/python3*/site-packages")), root / "Lib" / "site-packages"]
        version = settings.get("version") or settings.get("version_info") or ""
        match = re.match(r"\d+\.\d+(\.\d+)?", version)
        found = of_folders(f"the Python {path}", folders, match.group() if match else _python_of(folders))
        if settings.get("include-system-site-packages", "").lower() == "true" and settings.get("home"):
            for package in _asked(str(Path(settings["home"]) / "python3")).packages.values():
                found.add(package)
        found.executable = str(executable) if executable else None
        found.include = _include(settings.get("home", ""), found.python)
        return found
    if asked.is_dir():
        if next(asked.glob("*.dist-info"), None):
            return of_folders(f"the folder {path}", [asked], _python_of([asked]))
        if executable is None:
            raise UnreadableError(f"{path} is a folder with no Python and nothing installed in it")
    return _asked(str(executable))


def of_this_process() -> Environment:
    """The environment that this very Python runs in."""
    archive = Path(sys.argv[0]).absolute()
    folders = [Path(one) for one in sys.path if one and Path(one).is_dir() and Path(one) != archive.parent]
    found = of_folders(f"this Python, {sys.executable}", folders, "{}.{}.{}".format(*sys.version_info[:3]))
    found.executable = sys.executable
    found.include = _own_include()
    return found


def of_requirements(path: str) -> Environment:
    """What a freeze, a lock or a list of requirements names."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            text = file.read(LARGEST).decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error
    found = of_lines(f"the file {path}", text)
    if not found.packages:
        raise UnreadableError(f"{path} names no package that can be recognised: it is no freeze, lock or requirements")
    return found


def of_lines(title: str, text: str) -> Environment:
    """The same of text. A list in which everything is pinned, and that is long or hashed, is all that is installed."""
    found = Environment(title)
    loose = 0
    for line in text.splitlines():
        package, pinned = _line(line.strip()[:2000])
        if package is not None:
            found.packages[package.name] = package
            loose += not pinned
    found.whole = bool(found.packages) and not loose and (len(found.packages) >= 25 or "--hash=sha256:" in text)
    return found


def of_versions(title: str, said: dict[str, str]) -> Environment:
    """What somebody wrote down of theirs: never all of it."""
    found = Environment(title)
    for key, version in said.items():
        if versions.name(key) == "python":
            found.python = version
        else:
            found.add(Package(versions.name(key), version.strip()))
    return found


def _line(line: str) -> tuple[Package | None, bool]:
    """The package that a line names, and whether its version is pinned."""
    if not line or line.startswith(("#", "--")):
        return None, True
    for pattern in (PIN, COLUMNS):
        match = pattern.match(line)
        if match and versions.parse(match["version"]) is not None:
            return Package(versions.name(match["name"]), match["version"]), True
    if "@" in line or "://" in line:
        file, name = FILE.search(line), re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*@", line)
        egg = re.search(r"#egg=([A-Za-z0-9._-]+)", line)
        if file:
            return Package(versions.name(file["name"]), file["version"].replace("%2B", "+")), True
        named = name or egg
        return (Package(versions.name(named[1]), versions.ANY) if named else None), False
    try:
        requirement = versions.Requirement(line.split(" #")[0].rstrip("\\ "))
    except versions.InvalidRequirement:
        return None, True
    return Package(versions.name(requirement.name), str(requirement.specifier) or versions.ANY), False


def _read_folder(found: Environment, folder: Path) -> None:
    seen: dict[str, str] = {}
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError as error:
        found.trouble.append((str(folder), f"cannot be listed: {error.strerror or error}"))
        return
    infos = [one for one in names if one.endswith((".dist-info", ".egg-info"))]
    for one in infos[:MOST]:
        package, trouble = _distribution(folder, one)
        if trouble:
            found.trouble.append((one, trouble))
        if package is None:
            continue
        if package.name in seen and seen[package.name] != package.version:
            found.trouble.append((package.name, f"is there twice: {seen[package.name]} and {package.version}"))
        seen[package.name] = package.version
        found.add(package)
    found.trouble += [
        (one, "is what an interrupted uninstall left behind") for one in names if one.startswith("~") and len(one) > 2
    ]


def _distribution(folder: Path, info: str) -> tuple[Package | None, str]:
    """The distribution of a .dist-info or .egg-info, and what is wrong with it."""
    path = folder / info
    named = DIST.fullmatch(info)
    head = None
    for file in (path / "METADATA", path / "PKG-INFO", path):
        try:
            if file.is_file():
                with file.open("rb") as opened:
                    head = opened.read(HEAD).decode("utf-8", "replace")
                break
        except OSError as error:
            return None, f"cannot be read: {error.strerror or error}"
    fields = list(_fields(head or ""))
    first = dict(reversed(fields))
    name, version = first.get("name", ""), first.get("version", "")
    trouble = ""
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,200}[A-Za-z0-9])?", name) or versions.parse(version) is None:
        if head is None and not any(True for _ in _listed(path)):
            return None, "is an empty folder: what an interrupted install or uninstall leaves behind"
        trouble = "has no METADATA" if head is None else "its METADATA names no package and version"
        if named is None or versions.parse(named["version"]) is None:
            return None, trouble
        name, version = named["name"], named["version"]
    package = Package(
        versions.name(name),
        version,
        folder,
        path,
        tuple(value for key, value in fields if key == "requires-dist" and len(value) < 2000)[:2000],
        first.get("requires-python", ""),
    )
    return package, trouble


def _fields(head: str) -> Iterator[tuple[str, str]]:
    """The fields of a METADATA's header, which ends at the first empty line."""
    for line in head.splitlines():
        if not line.strip():
            return
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            yield key.strip().lower(), value.strip()


def _listed(path: Path) -> Iterator[str]:
    try:
        yield from os.listdir(path)  # noqa: PTH208
    except OSError:
        return


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _pyvenv(path: Path) -> dict[str, str] | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[:65536]
    except OSError:
        return None
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip().lower(): value.strip() for key, equals, value in pairs if equals}


def _executable(root: Path) -> Path | None:
    for one in ("bin/python3", "bin/python", "Scripts/python.exe"):
        if (root / one).exists():
            return root / one
    return None


def _python_of(folders: Iterable[Path]) -> str | None:
    for folder in folders:
        match = re.search(r"python(3\.\d+)", str(folder))
        if match:
            return match[1]
    return None


def _asked(executable: str) -> Environment:
    """Ask an interpreter where its folders are. -I and -S: nothing of the environment is run."""
    try:
        done = subprocess.run(
            [executable, "-I", "-S", "-c", ASK], capture_output=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )  # fmt: skip
        said = json.loads(done.stdout)
        folders = [Path(one) for one in said["folders"]]
    except FileNotFoundError as error:
        raise UnreadableError(f"{executable} does not exist") from error
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"{executable} does not answer like a Python") from error
    found = of_folders(f"the Python {executable}", folders, str(said["python"]))
    found.executable = executable
    found.include = Path(str(said.get("include", "")))
    return found


def _include(home: str, python: str | None) -> Path | None:
    if not home or not python:
        return None
    return Path(home).parent / "include" / ("python" + ".".join(python.split(".")[:2]))


def _own_include() -> Path:
    import sysconfig

    return Path(sysconfig.get_paths()["include"])


def running(argv: Sequence[str]) -> str:
    """How a person writes an argument vector in a shell."""
    import shlex

    return " ".join(shlex.quote(one) for one in argv)
