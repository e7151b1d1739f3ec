"""The stack's own Python for a host that has another one: which of the locked Debian packages travel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from builder.base import errors, process
from builder.base.project import Project
from builder.base.text import word
from builder.bundle.unbundle.interpreter import LIBRARIES, PACKAGES
from builder.lock import debian
from builder.lock.lockfile import Entry, Lock

LIBC = "libc6"  # the host's own: its programs and its GPU driver need it


def packages(project: Project, lock: Lock, scratch: Path) -> dict[str, Path]:
    """The locked packages of Python, and those with libraries that it needs, by their path in a bundle."""
    python = [entry for entry in lock.debian if _is_python(entry.name, lock.stack.python)]
    if not python:
        raise errors.BadInputError(
            f"the lock of {lock.name} has no package of Python {lock.stack.python}",
            next_step=f"vetted lock {word(lock.name)}",
        )
    own = scratch / "python"  # apt's folders are made once, and the route may have fetched packages too
    own.mkdir()
    files = debian.fetch(project, lock, own)
    needed = _needed(python, files)
    tree = {f"{PACKAGES}/{entry.sha256}.deb": files[entry] for entry in python}
    return tree | {f"{LIBRARIES}/{entry.sha256}.deb": files[entry] for entry in needed}


def _is_python(name: str, version: str) -> bool:
    """Its interpreter, standard library and, for CUDA, headers: Triton compiles with them."""
    return re.fullmatch(rf"(lib)?python{re.escape(version)}(-minimal|-stdlib|-dev)?", name) is not None


def _needed(python: list[Entry], files: Mapping[Entry, Path]) -> list[Entry]:
    """The locked packages that Python depends on, but for the C library and headers."""
    by_name = {entry.name: entry for entry in files}
    needed, ahead = set(python), list(python)
    while ahead:
        fields = process.check(
            "reading a Debian package", ["dpkg-deb", "--field", str(files[ahead.pop()]), "Depends", "Pre-Depends"]
        )
        for name in re.findall(r"(?:^|[,|:])\s*([a-z0-9][a-z0-9+.-]+)", fields.stdout, re.MULTILINE):
            entry = by_name.get(name)
            if entry and entry not in needed and name != LIBC and not name.endswith(("-dev", "-common")):
                needed.add(entry)
                ahead.append(entry)
    return sorted(needed.difference(python), key=lambda entry: entry.name)
