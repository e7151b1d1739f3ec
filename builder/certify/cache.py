"""What the environments of one command share: unpacked wheels, wheels that were built here, and bytecode.

It lies in the command's scratch folder, so it goes with the command, even with one that was killed. Everything in it is
shared as hard links: an environment gets a patched file or new bytecode as a new file, never by writing into a link.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from builder.base import errors
from builder.lock import archives, lockfile
from builder.lock.lockfile import Entry


@dataclass(frozen=True)
class Cache:
    """A folder of a command; several threads may use it at once."""

    root: Path

    @property
    def uv(self) -> Path:
        """Where uv unpacks wheels."""
        return self.root / "uv"

    def links(self, wheels: Mapping[Entry, Path]) -> list[Path]:
        """Folders for uv to install from: one for each wheel, because uv unpacks a wheel again from another folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / "links.lock"):
            return [archives.gather([wheel], self.root / "links" / entry.sha256) for entry, wheel in wheels.items()]

    def built(
        self, sources: Iterable[Entry], tools: Iterable[Entry], python: str, build: Callable[[], Mapping[Entry, Path]]
    ) -> dict[Entry, Path]:
        """The wheels of source distributions for a version of Python, each built once."""
        sources = list(sources)
        inputs = f"{python}\n{lockfile.format_python(sources)}\n{lockfile.format_python(tools)}"
        folder = self.root / "from-source" / hashlib.sha256(inputs.encode()).hexdigest()
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            # A command that was killed while it built left no cache: the next one begins with an empty folder.
            missing = [entry for entry in sources if not (folder / entry.name).is_dir()]
            if missing:
                for entry, wheel in build().items():
                    archives.gather([wheel], folder / entry.name)
            return {entry: next((folder / entry.name).iterdir()) for entry in sources}

    def lend(self, site_packages: Path) -> None:
        """Give an environment the bytecode that runs in others left of the very files that it shares with them."""
        for folder, files in _shared(site_packages):
            for name, file in files.items():
                compiled = self._bytecode / str(file.inode())
                if name.endswith(".py") and compiled.is_dir():
                    (folder / "__pycache__").mkdir(exist_ok=True)
                    for bytecode in compiled.iterdir():
                        with suppress(FileExistsError):  # its wheel brought it
                            (folder / "__pycache__" / f"{name[:-3]}.{bytecode.name}").hardlink_to(bytecode)

    def collect(self, site_packages: Path, since: int) -> None:
        """Keep the bytecode that a run left of shared files, for `lend`; `since`: when it began, in nanoseconds.

        Raises VettedError when the run wrote into a shared file: the other environments have now what it wrote.
        """
        for folder, files in _shared(site_packages):
            for name, file in files.items():
                if file.stat(follow_symlinks=False).st_mtime_ns > since:
                    raise errors.VettedError(
                        f"what ran wrote into {(folder / name).relative_to(site_packages)}, which other sets share",
                        cause="a package changes its own files when it is used",
                        next_step="the same command with UV_LINK_MODE=copy, so that nothing is shared",
                    )
            for bytecode in _entries(folder / "__pycache__"):
                module, *tag = bytecode.name.rsplit(".", 2)
                if bytecode.is_file(follow_symlinks=False) and (source := files.get(f"{module}.py")):
                    kept = self._bytecode / str(source.inode())
                    kept.mkdir(parents=True, exist_ok=True)
                    with suppress(FileExistsError):
                        (kept / ".".join(tag)).hardlink_to(bytecode.path)

    @property
    def _bytecode(self) -> Path:
        """A folder for each source file, by its number on the disk: no other file has it while uv's cache is there."""
        return self.root / "bytecode"


def _shared(top: Path) -> Iterator[tuple[Path, dict[str, os.DirEntry[str]]]]:
    """Every folder, with those of its files that are links: uv's cache has them too, and a patched file is none."""
    pending = [top]
    while pending:
        folder = pending.pop()
        files = {}
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "__pycache__":
                    pending.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_nlink > 1:
                files[entry.name] = entry
        yield folder, files


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it is not there, or lies too deep: what ran may have left anything."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
