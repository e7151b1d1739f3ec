"""What is installed: read from the metadata of a Python's folders, or from a freeze, a lock or a list of requirements.

Nothing is imported and nothing of the environment is run. All of it may lie: what is read and what is kept is bounded.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from doctor.base import versions
from doctor.read import distributions, files, interpreters
from doctor.read.distributions import Budget
from doctor.read.distributions import Package as Package
from doctor.read.files import UnreadableError as UnreadableError

MOST = 5000  # distributions in one folder
LARGEST = 8 * 1024 * 1024  # bytes of a list of requirements
SETTINGS = 64 * 1024  # bytes of a pyvenv.cfg
PIN = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*) ?(?:\[[^\]]*\])? ?===? ?(?P<version>[^\s;,\\#]+)")
COLUMNS = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*) (?P<version>v?\d[A-Za-z0-9.+!_]*)(?: |$)")
FILE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>\d[^-/]*)(?:-[^/]*)?")


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
    unread: list[tuple[str, str]] = field(default_factory=list)  # a file or folder, and why not all of it was read

    def version(self, name: str) -> str | None:
        found = self.packages.get(name)
        return found.version if found else None

    @property
    def programs(self) -> list[Path]:
        """Folders with programs that came with these packages: what lies there is no part of the machine."""
        found = [*self.folders, *(folder.parents[2] / "bin" for folder in self.folders if len(folder.parents) > 2)]
        found += [Path(self.executable).parent] if self.executable else []
        return [one for one in found if os.path.realpath(one) != "/usr/bin"]

    def add(self, package: Package) -> None:
        """The first folder on the path wins, as it does for Python."""
        self.packages.setdefault(package.name, package)


def of_folders(title: str, folders: Iterable[Path], python: str | None = None) -> Environment:
    """Everything whose metadata lies in these folders."""
    real: list[Path] = []
    for folder in folders:
        if files.is_folder(folder) and not any(_same(folder, other) for other in real):
            real.append(folder)
    found = Environment(title, whole=True, python=python, folders=tuple(real))
    budget = Budget()
    for folder in real:
        _read_folder(found, folder, budget)
    return found


def of_python(path: str) -> Environment:
    """The environment of an interpreter, or of the folder of a virtual environment."""
    named = path if os.sep in path or files.is_folder(path) else shutil.which(path) or path
    asked = Path(os.path.expanduser(named))  # noqa: PTH111
    folder = files.is_folder(asked)
    root = asked if folder else asked.parent.parent
    executable = _executable(root) if folder else asked
    if not folder and not files.exists(asked):
        raise UnreadableError(f"{asked} does not exist")
    try:
        settings = _pyvenv(root / "pyvenv.cfg")
    except FileNotFoundError:
        found = _of_interpreter(path, asked, executable)
    else:
        found = _of_virtual(path, root, *settings)
    found.executable = None if executable is None else _typed(executable)
    return found


def _of_virtual(path: str, root: Path, settings: dict[str, str], trouble: str) -> Environment:
    version = settings.get("version") or settings.get("version_info") or ""
    match = re.match(r"\d{1,3}\.\d{1,3}(\.\d{1,3})?", version)
    home = settings.get("home", "")
    layout = interpreters.of_environment(root, home, match.group() if match else None)
    found = of_folders(f"the Python {path}", layout.folders, layout.python)
    found.include = layout.include
    if trouble:
        found.unread.append(("pyvenv.cfg", trouble))
    if settings.get("include-system-site-packages", "").lower() == "true" and home:
        minor = interpreters.minor_of(layout.python) if layout.python else None
        # Its Python is named by a file of the environment: it is looked at, and never run.
        base = interpreters.of_prefix(Path(home).parent, minor) if Path(home).is_absolute() else None
        if base is None:
            found.whole = False
            found.unread.append(("pyvenv.cfg", f"names {home[:200]} as the home of a Python, and none lies there"))
        else:
            for package in of_folders("", base.folders).packages.values():
                found.add(package)
    return found


def _of_interpreter(path: str, asked: Path, executable: Path | None) -> Environment:
    if files.is_folder(asked):
        if any(one.endswith(".dist-info") for one in files.names(asked)[0]):
            return of_folders(f"the folder {path}", [asked], _python_of(asked))
        layout = interpreters.of_prefix(asked)
        if layout is None and executable is None:
            raise UnreadableError(f"{path} is a folder with no Python and nothing installed in it")
        if layout is None:
            raise UnreadableError(
                f"the folders of {path} do not lie as a Python's do, and no Python is run that was not named: "
                f"name {executable} itself if it is to be run"
            )
    else:
        layout = interpreters.of_file(asked) or interpreters.asked(asked)
    found = of_folders(f"the Python {executable or path}", layout.folders, layout.python)
    found.include = layout.include
    return found


def of_this_process() -> Environment:
    """The environment that this very Python runs in."""
    archive = Path(os.path.abspath(sys.argv[0]))  # noqa: PTH100
    folders = [Path(one) for one in sys.path if one and Path(one) != archive.parent]
    found = of_folders(f"this Python, {sys.executable}", folders, "{}.{}.{}".format(*sys.version_info[:3]))
    found.executable = sys.executable
    found.include = _own_include()
    return found


def of_requirements(path: str) -> Environment:
    """What a freeze, a lock or a list of requirements names."""
    try:
        data, more = files.head(path, LARGEST)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    found = of_lines(f"the file {path}", data.decode("utf-8", "replace"))
    if not found.packages:
        raise UnreadableError(f"{path} names no package that can be recognised: it is no freeze, lock or requirements")
    if more:
        found.whole = False
        found.unread.append((path, f"is larger than {LARGEST // 1024**2} MB: the rest of it was not read"))
    return found


def of_lines(title: str, text: str) -> Environment:
    """The same of text. A list in which everything is pinned, and that is long or hashed, is all that is installed."""
    found = Environment(title)
    loose = 0
    for line in text.splitlines():
        package, pinned = _line(" ".join(line[:2000].split()))  # runs of blanks are where patterns go wrong
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
        file, name = _wheel(line), re.match(r"([A-Za-z0-9][A-Za-z0-9._-]*) ?@", line)
        egg = re.search(r"#egg=([A-Za-z0-9._-]+)", line)
        if file:
            return Package(versions.name(file["name"]), file["version"].replace("%2B", "+")), True
        known = name or egg
        return (Package(versions.name(known[1]), versions.ANY) if known else None), False
    requirement = versions.requirement(line.split(" #")[0].rstrip("\\ "))
    if requirement is None:
        return None, True
    return Package(versions.name(requirement.name), str(requirement.specifier) or versions.ANY), False


def _wheel(line: str) -> re.Match[str] | None:
    """The name of the file that a URL ends in."""
    for ending in (".whl", ".tar.gz"):
        before, found, _ = line.partition(ending)
        if found:
            return FILE.fullmatch(re.split(r"[/\s@:=]", before)[-1])
    return None


def _read_folder(found: Environment, folder: Path, budget: Budget) -> None:
    seen: dict[str, str] = {}
    try:
        names, more = files.names(folder)
    except OSError as error:
        found.whole = False
        found.trouble.append((str(folder), f"cannot be listed: {files.why(error)}"))
        return
    infos = [one for one in names if one.endswith((".dist-info", ".egg-info"))]
    if more or len(infos) > MOST:
        found.whole = False
        found.unread.append((str(folder), f"holds more than {len(names) if more else MOST} entries: not all were read"))
    for one in infos[:MOST]:
        package, trouble = distributions.read(folder, one, budget)
        if trouble:
            found.trouble.append((one, trouble))
        if package is None:
            continue
        if package.name in seen and seen[package.name] != package.version:
            found.trouble.append((package.name, f"is there twice: {seen[package.name]} and {package.version}"))
        seen[package.name] = package.version
        found.add(package)
    if budget.requires <= 0 or budget.heads <= 0:
        found.unread.append((str(folder), "holds more metadata than any environment needs: not all of it was read"))
    found.trouble += [
        (one, "is what an interrupted uninstall left behind") for one in names if one.startswith("~") and len(one) > 2
    ]


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def _pyvenv(path: Path) -> tuple[dict[str, str], str]:
    """What a pyvenv.cfg says, and what is wrong with it. Raises FileNotFoundError."""
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
    for one in ("bin/python3", "bin/python", "Scripts/python.exe"):
        if files.exists(root / one):
            return root / one
    return None


def _typed(executable: Path) -> str | None:
    """How it is named in a command; None where nobody could type it."""
    said = str(executable)
    return (f"./{said}" if said.startswith("-") else said) if said.isprintable() else None


def _python_of(folder: Path) -> str | None:
    match = re.search(r"python(3\.\d{1,3})", str(folder))
    return match[1] if match else None


def _own_include() -> Path:
    import sysconfig

    return Path(sysconfig.get_paths()["include"])


def running(argv: Sequence[str]) -> str:
    """How a person writes an argument vector in a shell."""
    return " ".join(shlex.quote(one) for one in argv)
