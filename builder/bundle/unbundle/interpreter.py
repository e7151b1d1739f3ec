"""The stack's own Python on a host that has another one: its locked Debian packages, unpacked into a folder.

Nothing of the host is changed. Of the libraries that this Python links to, only those come along that the host lacks:
its own programs must not find older ones first.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from .stop import NO, UNFIT, StopError, say

PACKAGES, LIBRARIES = "python", "libraries"  # folders of a bundle, with packages named after their sha256
MISSING = "missing"  # below the unpacked Python: the libraries that the host lacks
NOT_NEEDED = ("usr/share/", "etc/", "usr/src/")
# What a stripped Debian package or an old libc would break; the suite needs each.
TRIAL = "import ctypes, ssl, sqlite3, bz2, lzma, zlib, readline, uuid; from xml.parsers import expat"


def install(root: Path, final: Path, version: str) -> Path:
    """The interpreter of an unpacked bundle, at `final`, which gets its name when it is whole."""
    python = final / "usr" / "bin" / f"python{version}"
    if final.is_dir():
        return python
    say(f"unpacking Python {version}")
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for package in sorted((root / PACKAGES).glob("*.deb")):
        unpack(package, partial)
    _join_headers(partial / "usr" / "include", version)
    staged = partial / "staged"
    for package in sorted((root / LIBRARIES).glob("*.deb")):
        unpack(package, staged)
    libraries = [path for path in sorted(staged.rglob("lib*.so*")) if path.is_file()]
    _add([library for library in libraries if not _loads(library.name)], partial)
    if _failure(partial, version):
        _add(libraries, partial)  # this Python may have brought libraries of its own, which only it finds
    if failure := _failure(partial, version):
        raise StopError(
            UNFIT,
            f"the stack's Python does not start here\n{failure}",
            f"an older libc than Debian 12's 2.36; this host has {' '.join(platform.libc_ver())}",
            "take a newer system, or make the bundle for the host's own Python (--python), which gives a report",
        )
    shutil.rmtree(staged, ignore_errors=True)
    partial.rename(final)
    return python


def _join_headers(include: Path, version: str) -> None:
    """Make Python.h compile here: Debian's pyconfig.h includes another one by its path below /usr/include."""
    folder = include / f"python{version}"
    if folder.is_symlink() or not folder.is_dir():
        return
    for other in sorted(include.glob("*-linux-gnu*")):
        if not os.path.lexists(folder / other.name):
            (folder / other.name).symlink_to(Path("..", other.name))


def _add(libraries: Sequence[Path], root: Path) -> None:
    for library in libraries:
        (root / MISSING).mkdir(exist_ok=True)
        shutil.copyfile(library, root / MISSING / library.name)


def variables(final: Path) -> dict[str, str]:
    """The environment variables that this Python needs."""
    folder = final / MISSING
    if not folder.is_dir():
        return {}
    path = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": os.pathsep.join(path)}


def _failure(root: Path, version: str) -> str:
    """What an unpacked Python prints when it does not start, or lacks a module; nothing when it is sound."""
    argv = [str(root / "usr" / "bin" / f"python{version}"), "-I", "-S", "-c", TRIAL]
    try:
        done = subprocess.run(argv, env={**os.environ, **variables(root)}, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return done.stderr.strip()[-1000:] or f"exit code {done.returncode}" if done.returncode else ""


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def unpack(package: Path, target: Path) -> None:
    """Unpack a Debian package that is named after its sha256. Documentation and configuration are left out."""
    content = package.read_bytes()
    if hashlib.sha256(content).hexdigest() != package.stem:
        raise StopError(NO, f"{package} has changed since it was unpacked", "it was edited", "choose another --to")
    with tarfile.open(fileobj=io.BytesIO(_data(content, package)), mode="r:*") as archive:
        for member in archive:
            _extract(archive, member, target)


def _data(content: bytes, package: Path) -> bytes:
    """The archive with the files of a package: a package is an `ar` archive of three members."""
    at = 8
    while content[:8] == b"!<arch>\n" and at + 60 <= len(content):
        name, size = content[at : at + 16].decode("ascii", "replace"), int(content[at + 48 : at + 58])
        at += 60
        if name.startswith("data.tar"):
            return content[at : at + size]
        at += size + size % 2
    raise StopError(NO, f"{package} is no Debian package", "the bundle was not made by `vetted bundle`")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write a file, or a link to a file of the same packages. Folders come with their files."""
    name = os.path.normpath(member.name)
    if name.startswith(("/", "..")) or name.startswith(NOT_NEEDED) or not (member.isfile() or member.issym()):
        return
    root = target.resolve()
    path = root / name
    # Nothing is written through a link, wherever it leads.
    if path.parent.resolve() != path.parent or path.is_symlink():
        raise StopError(NO, f"a Debian package writes {member.name!r} through a link", "it is none of Debian's own")
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(_linked(member.linkname, path, root))
    elif source := archive.extractfile(member):
        with source, path.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
        path.chmod(0o755 if member.mode & 0o111 else 0o644)


def _linked(link: str, path: Path, root: Path) -> str:
    """The text of a link: in a package, an absolute one begins at the root of the system."""
    absolute = os.path.normpath(f"/{link}") if link.startswith("/") else ""
    return os.path.relpath(f"{root}{absolute}", path.parent) if absolute else link
