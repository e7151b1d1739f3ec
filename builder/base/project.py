"""The folders of a project: files that people and stages write, and the state that can be made again.

`<root>/.vetted` (or VETTED_STATE) has environments, images and downloads; deleting it loses nothing but time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from builder.base import errors
from builder.base.text import word


@dataclass(frozen=True)
class Project:
    root: Path

    @property
    def state(self) -> Path:
        override = os.environ.get("VETTED_STATE")
        return Path(override).absolute() if override else self.root / ".vetted"

    @property
    def stacks(self) -> Path:
        """The project's stacks, which its documents show."""
        return self.root / "lockfiles"

    @property
    def own_stacks(self) -> Path | None:
        """A folder with the user's own stacks (VETTED_STACKS); None when there is none."""
        folder = os.environ.get("VETTED_STACKS")
        return Path(folder).absolute() if folder else None

    def owns(self, stack: str) -> bool:
        """Whether a stack is one of the user's own."""
        return self.own_stacks is not None and (self.own_stacks / stack / "stack.toml").exists()

    def stack_dir(self, stack: str) -> Path:
        return self.own_stacks / stack if self.own_stacks and self.owns(stack) else self.stacks / stack

    def control_dir(self, control: str) -> Path:
        return self.root / "lockfiles" / "controls" / control

    def dockerfile(self, stack: str) -> Path:
        """Of the user's own stacks it is beside stack.toml: nothing in the project changes."""
        return self.stack_dir(stack) / "Dockerfile" if self.owns(stack) else self.root / "images" / stack / "Dockerfile"

    @property
    def smoke(self) -> Path:
        return self.root / "smoke"

    @property
    def runtime(self) -> Path:
        """The package that every image has beside its stack."""
        return self.root / "runtime"

    @property
    def advisories(self) -> Path:
        return self.root / "advisories"

    def relative(self, path: Path) -> str:
        """The path as a person would type it from the project's root."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def scratch(self, stack: str) -> Path:
        """The folder for unfinished work on a stack. Only the process that holds the stack may use it."""
        return self.state / "tmp" / stack

    @contextmanager
    def holding(self, stack: str) -> Iterator[Path]:
        """Keep other vetted processes from working on a stack; yields its scratch folder, empty.

        What is no stack, such as the documents, has a name that no stack can have: it begins with a dot.
        The kernel frees the lock of a process that was killed; its unfinished work is removed here.
        """
        locks = self.state / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = FileLock(locks / f"{stack}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            what = stack.removeprefix(".")
            print(f"another vetted is at work on {word(what)}; waiting for it to finish", file=sys.stderr, flush=True)
            lock.acquire()
        scratch = self.scratch(stack)
        try:
            remove(scratch)
            scratch.mkdir(parents=True)
            yield scratch
        finally:
            remove(scratch)
            lock.release()


def find(start: Path | None = None) -> Project:
    """The project of the current folder. Raises BadInputError outside of one."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "lockfiles").is_dir() and (folder / "smoke").is_dir():
            return Project(folder)
    raise errors.BadInputError(
        f"{here} is not inside a Vetted project: no folder above it has lockfiles/ and smoke/",
        next_step="cd to your clone of Vetted",
    )


def remove(folder: Path) -> None:
    """Remove a folder, or a link to one. Foreign code may have nested folders in it deeper than Python can follow."""
    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL)


def write(path: Path, data: str | bytes, scratch: Path) -> None:
    """Write a file completely or not at all: through a temporary file in `scratch` and a rename."""
    content = data.encode() if isinstance(data, str) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = scratch / f"{path.name}.partial"
    partial.write_bytes(content)
    try:
        partial.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The state is on another disk than the project: rename from beside the target instead.
        beside = path.with_name(f".{path.name}.partial")
        beside.unlink(missing_ok=True)  # where others can write, it might be a link
        try:
            with beside.open("xb") as file:
                file.write(content)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
