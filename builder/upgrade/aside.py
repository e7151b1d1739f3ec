"""A copy of one stack to work on, beside everything else of the project; and the step that puts it in place.

The project's stack stays as it was, whatever fails or is killed, until one system call exchanges the two folders.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.project import Project, remove, sha256, sha256_file, write
from builder.base.text import word
from builder.certify import hostenv
from builder.image import render
from builder.lock import archives, lockfile
from builder.pages import generate

AT_FDCWD = -100
RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Aside(Project):
    """The project as it would be with another lock of one stack. Its root is a folder of its own."""

    home: Project
    name: str
    copied: str  # the digest of the stack's folder, as it was copied

    @property
    def state(self) -> Path:
        """Environments and images are its own; downloads are shared."""
        return self.home.state / "aside" / self.name

    @property
    def own_stacks(self) -> None:
        """The copy is below its own root, wherever the stack is."""

    @property
    def smoke(self) -> Path:
        return self.home.smoke

    @property
    def runtime(self) -> Path:
        return self.home.runtime

    @property
    def advisories(self) -> Path:
        return self.home.advisories


def make(project: Project, name: str, folder: Path) -> Aside:
    """A copy of a stack below `folder`."""
    copy = Aside(folder, project, name, _digest(project.stack_dir(name)))
    shutil.copytree(project.stack_dir(name), copy.stack_dir(name))
    (folder / "images").mkdir()
    for shared in ("patches", "templates"):
        if (project.root / "images" / shared).is_dir():
            (folder / "images" / shared).symlink_to(project.root / "images" / shared)
    copy.state.mkdir(parents=True, exist_ok=True)
    for downloads in ("debs", archives.FOLDER):
        (project.state / downloads).mkdir(parents=True, exist_ok=True)
        if not (copy.state / downloads).exists():
            (copy.state / downloads).symlink_to(project.state / downloads)
    return copy


def adopt(copy: Aside, scratch: Path) -> None:
    """Put the copy of a stack in the place of the project's own, in one step.

    The Dockerfile and the documents are rendered from the lock. A note says that this has to be done, and is written
    first: after a kill, the next command finds it and renders them.
    """
    home, name = copy.home, copy.name
    target = home.stack_dir(name)
    # Beside the stacks, and not in a state that may lie on another disk.
    staged = (target.parent if home.owns(name) else home.root) / ".vetted" / "swap" / name
    remove(staged)
    staged.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(copy.stack_dir(name), staged)
    if _digest(target) != copy.copied:
        raise errors.VettedError(
            f"{home.relative(target)} was changed while the candidate was tried; nothing was put in place",
            cause="somebody edited stack.toml, or git changed the branch",
            next_step=f"git status {word(home.relative(target))}, then the same command again",
        )
    for path in (*staged.rglob("*"), staged):
        _flush(path)
    write(_note(home, name), "rendering\n", scratch)
    _exchange(staged, target)
    _flush(target.parent)
    remove(staged)  # by now the old one
    _move_state(copy)
    finish(home, name, scratch)


def finish(home: Project, name: str, scratch: Path) -> bool:
    """Render what follows from a lock that was put in place before a kill. True when there was something to do."""
    note = _note(home, name)
    if not note.is_file():
        return False
    for lock in lockfile.load_all(home, name):
        if render.difference(home, lock):
            write(render.path_of(home, lock), render.dockerfile(home, lock), scratch)
    with home.holding(".documents") as documents:
        generate.refresh(home, documents)
    note.unlink()
    return True


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return sha256("".join(f"{path.relative_to(folder)} {sha256_file(path)}\n" for path in files).encode())


def _note(home: Project, name: str) -> Path:
    return home.state / "recertify" / f"{name}.pending"


def _exchange(path: Path, other: Path) -> None:
    """Exchange two folders: at every moment, each path is one of them, whole."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(path), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        error = ctypes.get_errno()
        if error in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise errors.StorageError(
                f"this disk cannot exchange two folders in one step; {other} is as it was",
                cause="a network file system, or .vetted on another disk than lockfiles",
                next_step=f"cp -r {word(path)}/. {word(other)}/",
            )
        raise OSError(error, os.strerror(error), str(other))


def _flush(path: Path) -> None:
    """Write to the disk, so that a power cut cannot leave empty files under the new name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_state(copy: Aside) -> None:
    """Move what was built and installed for the new lock to the project."""
    for kind in ("host", "images"):
        source, target = copy.state / kind, copy.home.state / kind
        for path in source.iterdir() if source.is_dir() else ():
            target.mkdir(parents=True, exist_ok=True)
            if (target / path.name).is_dir():
                remove(target / path.name)
            path.rename(target / path.name)
            if kind == "host" and (target / path.name).is_dir():
                for old in target.glob(f"{copy.name}-????????????"):
                    if old.name != path.name:
                        hostenv.remove(old)
