"""A copy of one stack to work on: everything else is the project's own. And the step that puts it in place.

What is made aside may come to nothing, or be killed; the project's stack stays as it was until one system call
exchanges the two folders.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.project import Project, sha256, sha256_file, write
from builder.certify import hostenv
from builder.image import render
from builder.lock import archives, lockfile
from builder.pages import generate

AT_FDCWD = -100
RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Aside(Project):
    """The project as it would be with another lock of one stack. Its root is a folder of its own."""

    of: Project
    name: str
    copied: str  # the digest of the stack's folder, as it was copied

    @property
    def state(self) -> Path:
        """Its environments and images are its own; what was downloaded is shared."""
        return self.of.state / "aside" / self.name

    @property
    def smoke(self) -> Path:
        return self.of.smoke

    @property
    def runtime(self) -> Path:
        return self.of.runtime

    @property
    def advisories(self) -> Path:
        return self.of.advisories


def make(project: Project, name: str, folder: Path) -> Aside:
    """A copy of a stack below `folder`."""
    made = Aside(folder, project, name, _digest(project.stack_dir(name)))
    shutil.copytree(project.stack_dir(name), made.stack_dir(name))
    (folder / "images").mkdir()
    for shared in ("patches", "templates"):
        if (project.root / "images" / shared).is_dir():
            (folder / "images" / shared).symlink_to(project.root / "images" / shared)
    made.state.mkdir(parents=True, exist_ok=True)
    for kept in ("debs", archives.FOLDER):
        (project.state / kept).mkdir(parents=True, exist_ok=True)
        if not (made.state / kept).exists():
            (made.state / kept).symlink_to(project.state / kept)
    return made


def adopt(made: Aside, scratch: Path) -> None:
    """Put the copy of a stack in the place of the project's own, in one step.

    The Dockerfile and the documents follow from the lock. A note that they have to is written first; whoever finds it
    renders them, so that a kill in between leaves nothing behind that the next command does not finish.
    """
    home, name = made.of, made.name
    target = home.stack_dir(name)
    # Beside the project's folders, and not in a state that may lie on another disk.
    staged = home.root / ".vetted" / "swap" / name
    shutil.rmtree(staged, ignore_errors=True)
    staged.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(made.stack_dir(name), staged)
    if _digest(target) != made.copied:
        raise errors.VettedError(
            f"{home.relative(target)} was changed while the candidate was tried; nothing was put in place",
            cause="somebody edited stack.toml, or git changed the branch",
            next_step=f"git status {home.relative(target)}, then the same command again",
        )
    for path in (*staged.rglob("*"), staged):
        _flush(path)
    write(_note(home, name), "rendering\n", scratch)
    _exchange(staged, target)
    _flush(target.parent)
    shutil.rmtree(staged, ignore_errors=True)  # by now the old one
    _move_state(made)
    finish(home, name, scratch)


def finish(home: Project, name: str, scratch: Path) -> bool:
    """Render what follows from a lock that was put in place before a kill. True when there was something to do."""
    note = _note(home, name)
    if not note.is_file():
        return False
    lock = lockfile.load(home, name)
    if render.difference(home, lock):
        write(home.dockerfile(name), render.dockerfile(home, lock), scratch)
    with home.holding("documents") as documents:
        generate.refresh(home, documents)
    note.unlink()
    return True


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return sha256("".join(f"{path.relative_to(folder)} {sha256_file(path)}\n" for path in files).encode())


def _note(home: Project, name: str) -> Path:
    return home.state / "recertify" / f"{name}.pending"


def _exchange(one: Path, other: Path) -> None:
    """Exchange two folders: at every moment, each name is one of them, whole."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) != 0:
        error = ctypes.get_errno()
        if error in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise errors.StorageError(
                f"this disk cannot exchange two folders in one step; {other} is as it was",
                cause="a network file system, or .vetted on another disk than lockfiles",
                next_step=f"cp -r {one}/. {other}/",
            )
        raise OSError(error, os.strerror(error), str(other))


def _flush(path: Path) -> None:
    """Have the disk keep it, so that a power cut cannot leave empty files behind the new name."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move_state(made: Aside) -> None:
    """What was built and installed for the new lock is the project's own now."""
    for kind in ("host", "images"):
        source, target = made.state / kind, made.of.state / kind
        for path in source.iterdir() if source.is_dir() else ():
            target.mkdir(parents=True, exist_ok=True)
            if (target / path.name).is_dir():
                shutil.rmtree(target / path.name)
            path.rename(target / path.name)
            if kind == "host" and (target / path.name).is_dir():
                for old in target.glob(f"{made.name}-????????????"):
                    if old.name != path.name:
                        hostenv.remove(old)
