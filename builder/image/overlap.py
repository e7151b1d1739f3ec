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
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SITE = "site-packages/"
# Other ways to say it, below the environment: `data` of a wheel may go anywhere there, and lib64 is a link to lib.
SITE_BELOW = re.compile(r"lib(64)?/python3[.][0-9]+/site-packages/", re.IGNORECASE)
HEADERS = re.compile(r"include/site/(python3[.][0-9]+/)?(?P<name>[^/]+)/", re.IGNORECASE)
# What comes after a module's name: foo.py, foo/__init__.py, foo.cpython-311-x86_64-linux-gnu.so, foo.abi3.so
MODULE = re.compile(r"(?P<name>[^.]+?)(/__init__)?\.(py|pyc|([^/]+\.)?so)")
BYTECODE = re.compile(r"(?P<folder>.*/)__pycache__/(?P<name>[^/.]+)\.[^/]*pyc")  # Python reads it instead of the source
STARTUP = re.compile(r"site-packages/([^/]+\.pth|(site|user)customize(/__init__)?\.(py|pyc|([^/]+\.)?so))")
# What an installer and Python know distributions by: the one of a wheel's own name is its own.
RECORD = re.compile(r"site-packages/(?P<name>[^/-]+)[^/]*\.(dist|egg)-info(/.*)?")
# The interpreter's, the runtime's, and programs of the system that others start by name: PATH has bin/ first.
OWN_COMMANDS = re.compile(
    r"bin/(python[0-9.]*|vetted|activate[^/]*|nvidia-smi|sh|bash|dash|env|uname|ldconfig)|pyvenv\.cfg|lib64"
)
UNREADABLE = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, configparser.Error, OSError, EOFError, ValueError, RuntimeError,
)  # fmt: skip
MOST = 8  # findings that are shown


@dataclass(frozen=True)
class InstalledFile:
    """A file that an archive installs: where, and what opens it. `plain`: its path leads nowhere else."""

    path: str
    archive: Path
    member: zipfile.ZipInfo | str  # empty for a command that an installer writes
    plain: bool = True

    @property
    def key(self) -> str:
        """The path as file systems compare it that ignore case: own files may be installed on one."""
        return key(self.path)

    def content(self) -> bytes:
        if isinstance(self.member, zipfile.ZipInfo):
            with zipfile.ZipFile(self.archive) as wheel:
                return wheel.read(self.member)  # not by its name: a wheel may have it twice
        with tarfile.open(self.archive) as archive:
            file = archive.extractfile(self.member)
            return file.read() if file else b""


def findings(own: Iterable[Path], parent: Iterable[Path]) -> list[str]:
    """What is wrong with an extension's archives beside its parent's, a line each."""
    archives = list(parent)
    theirs = {file.key: file for path in archives for file in _files(path)}
    modules = {name: file.path for key, file in theirs.items() if (name := module(key))}
    names = {_distribution(path) for path in archives}
    wrong = []
    for archive in own:
        try:
            reasons = [_reason(file, theirs, modules, names) for file in _files(archive, strict=True)]
            wrong += [f"{archive.name} {reason}" for reason in reasons if reason]
        except UNREADABLE as error:
            wrong.append(f"{archive.name} cannot be read: {(str(error).splitlines() or [type(error).__name__])[0]}")
    return wrong


def _reason(file: InstalledFile, theirs: dict[str, InstalledFile], modules: dict[str, str], names: set[str]) -> str:
    """Why an extension must not bring a file; empty when it may."""
    shown, key = file.path.removeprefix(SITE), file.key
    name, there, record = module(key), theirs.get(key), RECORD.fullmatch(key)
    if STARTUP.fullmatch(key):
        return f"brings {shown}, which every Python would run at its start"
    if not file.plain or OWN_COMMANDS.fullmatch(key):
        return f"brings {shown}, which is the image's own"
    if record and (_normal(record["name"]) != _distribution(file.archive) or _normal(record["name"]) in names):
        return f"brings {shown}, which tells of another distribution than its own"
    if there and not (file.member and there.member and file.content() == there.content()):
        return f"brings another {shown} than {there.archive.name}"
    if not there and name and name in modules:
        return f"brings {shown}, which hides {modules[name].removeprefix(SITE)}"
    return ""


def key(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distribution(archive: Path) -> str:
    """The normalised name of the distribution of an archive."""
    name, _, _ = archive.name.partition("-") if archive.suffix == ".whl" else archive.name.rpartition("-")
    return _normal(name)


def module(key: str) -> str:
    """The module that a file is, as a path: two files of one module hide each other."""
    if bytecode := BYTECODE.fullmatch(key):
        key = f"{bytecode['folder']}{bytecode['name']}.py"
    match = MODULE.fullmatch(key) if key.startswith(SITE) else None
    return match["name"] if match else ""


def _files(archive: Path, *, strict: bool = False) -> Iterator[InstalledFile]:
    """Every file that an archive installs. Of a source distribution, the package of its own name.

    `strict`: raise configparser.Error or ValueError for commands that cannot be read, which no installer writes.
    """
    if archive.suffix != ".whl":
        package = archive.name.rpartition("-")[0].replace("-", "_").lower()
        with tarfile.open(archive) as source:
            for name in source.getnames():
                path = name.partition("/")[2]
                if path.startswith(f"{package}/") and "." in path.rpartition("/")[2]:
                    yield InstalledFile(SITE + path, archive, name)
        return
    with zipfile.ZipFile(archive) as wheel:
        names = ["/".join(_parts(info.filename)) for info in wheel.infolist()]
        stems = {name.partition(".dist-info/")[0] for name in names if re.match(r"[^/]+[.]dist-info/", name)}
        for info, name in zip(wheel.infolist(), names, strict=True):
            if info.is_dir():
                continue
            plain = not info.filename.startswith("/") and ".." not in name.split("/")
            yield InstalledFile(_installed(name, stems, _distribution(archive)), archive, info, plain)
            if re.fullmatch(r"[^/]+[.]dist-info/entry_points[.]txt", name):
                for command in _commands(wheel.read(info), strict=strict):
                    parts = _parts(command)
                    yield InstalledFile("/".join(("bin", *parts)), archive, "", ".." not in parts)


def _parts(path: str) -> list[str]:
    """The steps of a path, as the kernel takes them: `./a//b` is a/b."""
    return [part for part in path.split("/") if part not in ("", ".")]


def _installed(name: str, stems: set[str], distribution: str) -> str:
    """Where a member of a wheel goes, below the environment. `stems`: of its .dist-info folders."""
    folder, _, rest = name.partition("/")
    if not folder.endswith(".data") or folder.removesuffix(".data") not in stems:
        return SITE + name
    kind, _, path = rest.partition("/")
    headers = f"include/site/{distribution}/{path}"
    path = {"scripts": f"bin/{path}", "data": path, "headers": headers}.get(kind, SITE + path)
    if match := HEADERS.match(path):
        return f"include/site/{_normal(match['name'])}/{path[match.end() :]}"
    return SITE_BELOW.sub(SITE, path, count=1) if SITE_BELOW.match(path) else path


def _commands(content: bytes, *, strict: bool) -> list[str]:
    """The commands that an installer writes for a wheel."""
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    try:
        parser.read_string(content.decode())
    except (configparser.Error, UnicodeDecodeError):
        if strict:
            raise
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
