"""The locked Debian packages that this machine can get, today: a mirror deletes what it replaces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from builder.base import errors
from builder.base.download import Downloader
from builder.base.project import Project
from builder.lock import lockfile, snapshot
from builder.lock.apt import Apt
from builder.lock.lockfile import Lock
from tests.commands import vetted


def differ(left: Path, right: Path) -> bool:
    """Do two copies of the project lock other Debian packages?"""
    return _texts(left) != _texts(right)


def renew(project: Project, stacks: Iterable[str]) -> None:
    """Lock the Debian packages of these stacks anew, where this machine cannot get those of the lock."""
    for name in stacks:
        with project.holding(name) as scratch:
            lost = any(_is_lost(lock, scratch) for lock in lockfile.load_all(project, name))
        if lost:
            answer = vetted(project.root, "lock", name, "--upgrade", "debian")
            assert answer.code == 0, answer.err


def _texts(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.glob("lockfiles/*/debian*.txt")}


def _is_lost(lock: Lock, scratch: Path) -> bool:
    """Did the mirror replace locked packages, and does this machine not reach the archive that keeps them?"""
    downloads = scratch / "lost" / lock.platform.name
    try:
        apt = Apt(scratch / f"apt-{lock.platform.name}", lock.stack)
    except errors.VettedError:
        return False  # no mirror at all: a test that needs one says so
    downloads.mkdir(parents=True)
    try:
        with Downloader() as downloader:
            for entry in set(lock.debian) - apt.offered(lock.debian):
                snapshot.download(downloader, entry, lock.platform.name, downloads)
    except errors.NetworkError:
        return True
    return False
