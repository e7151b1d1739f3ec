"""What an extension must not bring: files of the parent's, code that starts with every Python, another interpreter.

The same code runs on the host and, as a script, inside the image build, where source distributions become wheels:
`python overlap.py WHEELS OWN` reads the archives of the parent's layers, and own wheels. It needs only the standard
library.
"""

from __future__ import annotations

import configparser
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SITE = "site-packages/"
# What comes after a module's name: foo.py, foo/__init__.py, foo.cpython-311-x86_64-linux-gnu.so, foo.abi3.so
MODULE = re.compile(r"(?P<name>[^.]+?)(/__init__)?\.(py|pyc|([^/]+\.)?so)")
STARTUP = re.compile(r"site-packages/([^/]+\.pth|(site|user)customize(/__init__)?\.(py|pyc|([^/]+\.)?so))")
OWN_COMMANDS = re.compile(r"bin/(python[0-9.]*|vetted|activate[^/]*)|pyvenv\.cfg")
MOST = 8  # findings that are shown


@dataclass(frozen=True)
class InstalledFile:
    """A file that an archive installs: where, and what opens it."""

    path: str
    archive: Path
    member: str  # empty for a command that an installer writes

    def content(self) -> bytes:
        if self.archive.suffix == ".whl":
            with zipfile.ZipFile(self.archive) as wheel:
                return wheel.read(self.member)
        with tarfile.open(self.archive) as archive:
            file = archive.extractfile(self.member)
            return file.read() if file else b""


def findings(own: Iterable[Path], parent: Iterable[Path]) -> list[str]:
    """What is wrong with an extension's archives beside its parent's, a line each."""
    theirs = {file.path: file for path in parent for file in _files(path)}
    modules = {name: path for path in theirs if (name := _module(path))}
    wrong = []
    for archive in own:
        for file in _files(archive):
            shown, name = file.path.removeprefix(SITE), _module(file.path)
            there = theirs.get(file.path)
            if STARTUP.fullmatch(file.path):
                wrong.append(f"{archive.name} brings {shown}, which every Python would run at its start")
            elif OWN_COMMANDS.fullmatch(file.path) or ".." in file.path.split("/") or file.path.startswith("/"):
                wrong.append(f"{archive.name} brings {shown}, which is the image's own")
            elif there and not (file.member and there.member and file.content() == there.content()):
                wrong.append(f"{archive.name} brings another {shown} than {there.archive.name}")
            elif not there and name and name in modules:
                wrong.append(f"{archive.name} brings {shown}, which hides {modules[name].removeprefix(SITE)}")
    return wrong


def _module(path: str) -> str:
    """The module that a file is, as a path: two files of one module hide each other."""
    match = MODULE.fullmatch(path) if path.startswith(SITE) else None
    return match["name"] if match else ""


def _files(archive: Path) -> Iterator[InstalledFile]:
    """Every file that an archive installs. Of a source distribution, the package of its own name."""
    if archive.suffix != ".whl":
        package = archive.name.rpartition("-")[0].replace("-", "_").lower()
        with tarfile.open(archive) as source:
            for name in source.getnames():
                path = name.partition("/")[2]
                if path.startswith(f"{package}/") and "." in path.rpartition("/")[2]:
                    yield InstalledFile(SITE + path, archive, name)
        return
    with zipfile.ZipFile(archive) as wheel:
        for name in wheel.namelist():
            if name.endswith(".dist-info/entry_points.txt"):
                for command in _commands(wheel.read(name).decode(errors="replace")):
                    yield InstalledFile(f"bin/{command}", archive, "")
            elif not name.endswith("/"):
                yield InstalledFile(_installed(name), archive, name)


def _installed(name: str) -> str:
    """Where a member of a wheel goes, below the environment."""
    folder, _, rest = name.partition("/")
    if not folder.endswith(".data"):
        return SITE + name
    kind, _, path = rest.partition("/")
    return {"scripts": f"bin/{path}", "data": path, "headers": f"include/{path}"}.get(kind, SITE + path)


def _commands(text: str) -> list[str]:
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    sections = ("console_scripts", "gui_scripts")
    return [command.strip() for section in sections if section in parser for command in parser[section]]


def in_words(wrong: list[str]) -> str:
    """Findings, not too many of them."""
    more = [f"and {len(wrong) - MOST} more"] if len(wrong) > MOST else []
    return "\n".join([*wrong[:MOST], *more])


def main(wheels: str, own: str) -> None:
    layers = [path for path in Path(wheels).iterdir() if path.name != "build" and not path.name.startswith("own")]
    archives = [path for layer in layers for path in layer.iterdir()]
    if wrong := findings(sorted(Path(own).glob("*.whl")), archives):
        sys.exit(in_words(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
