"""The kernels of a CUDA lock: which architectures each native library has, read from the locked files.

They are kept beside the lock in gpus.json, with the digest of the lock that they were read from: the files of a stack
take gigabytes, and what is in them does not change.
"""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, reading
from builder.base.project import Project, write
from builder.lock import architecture, archives, fatbin
from builder.lock.audit import Finding
from builder.lock.lockfile import Entry, Lock

FILE = "gpus.json"
SOURCE = re.compile(r"\.cuh?$|/ptxas$")  # what is compiled where it runs, or a compiler for it
# An architecture counts when a library has at least this share of the images of its most frequent one. nvcc adds an
# empty kernel for its default architecture to some libraries, and a few kernels need one GPU's own instructions.
SHARE = 0.5


@dataclass(frozen=True)
class Library:
    """A shared object of a distribution: its path in there, and how many images it has of each architecture."""

    distribution: str
    path: str
    images: Mapping[str, int]

    @property
    def architectures(self) -> list[str]:
        """Those that most of its kernels are there for."""
        least = SHARE * max(self.images.values(), default=0)
        return sorted((name for name, count in self.images.items() if count >= least), key=architecture.order)


@dataclass(frozen=True)
class Kernels:
    """All that was read. `sources`: distribution -> number of files that are compiled where they run."""

    lock: str
    cuda: str
    libraries: tuple[Library, ...]
    sources: Mapping[str, int]


def cuda(lock: Lock) -> str | None:
    """The CUDA version of a lock, such as "13.0"; None for a CPU stack."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in lock.versions:
            return ".".join(lock.versions[name].split(".")[:2])
    return None


def path(project: Project, name: str) -> Path:
    return project.stack_dir(name) / FILE


def record(project: Project, lock: Lock, scratch: Path, report: Callable[[str], None]) -> Kernels:
    """Read the kernels of a CUDA stack, and keep them in gpus.json. Raises NetworkError, BadInputError."""
    files = archives.fetch(project, lock.stack, lock.python, scratch, report)
    report("reading the kernels of the locked files")
    kernels = read(lock, files, scratch)
    write(path(project, lock.name), text(kernels), scratch)
    return kernels


def read(lock: Lock, files: Mapping[Entry, Path], scratch: Path) -> Kernels:
    """Read the kernels in the locked files of a CUDA stack. Raises BadInputError when one is damaged."""
    libraries: list[Library] = []
    sources: dict[str, int] = {}
    for entry in sorted(lock.python, key=lambda entry: entry.name):
        if count := _sources(files[entry]):
            sources[entry.name] = count
        if files[entry].suffix == ".whl":
            images = fatbin.of_wheel(files[entry], scratch)
            libraries += [Library(entry.name, name, images[name]) for name in sorted(images)]
    compiled = {library.distribution for library in libraries}
    # Headers beside compiled kernels are for programs of others.
    rest = {name: count for name, count in sources.items() if name not in compiled}
    return Kernels(lock.digest, cuda(lock) or "", tuple(libraries), rest)


def _sources(file: Path) -> int:
    try:
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                names = wheel.namelist()
        else:
            with tarfile.open(file) as sdist:
                names = sdist.getnames()
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, OSError) as error:
        raise errors.BadInputError(
            f"{file.name}: not readable: {error}",
            cause="a file below .vetted/wheels was cut short or changed",
            next_step="remove that file, then run this again",
        ) from error
    return sum(SOURCE.search(name) is not None for name in names)


def text(kernels: Kernels) -> str:
    """The content of gpus.json: one line for each library, the same for the same lock."""
    head = {"lock": kernels.lock, "cuda": kernels.cuda, "driver": architecture.driver(kernels.cuda)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append(f' "sources": {json.dumps(dict(sorted(kernels.sources.items())))},')
    rows = []
    for library in kernels.libraries:
        images = {name: library.images[name] for name in sorted(library.images, key=architecture.order)}
        rows.append(f"  {json.dumps([library.distribution, library.path, images])}")
    return "\n".join(["{", *lines, ' "libraries": [', ",\n".join(rows), " ]", "}"]) + "\n"


def load(project: Project, name: str) -> Kernels | None:
    """What was read of a stack; None when nothing was. Raises BadInputError when the file is damaged."""
    file = path(project, name)
    where = project.relative(file)
    command = f"vetted gpus {name} --record"
    try:
        document = reading.json_object(file, where, command)
    except FileNotFoundError:
        return None
    try:
        libraries = tuple(Library(_text(row[0]), _text(row[1]), _counts(row[2])) for row in document["libraries"])
        return Kernels(_text(document["lock"]), _text(document["cuda"]), libraries, _counts(document["sources"]))
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise errors.BadInputError(
            f"{where}: `lock`, `cuda`, `sources` or `libraries` is not what `{command}` writes",
            cause="the file was edited, or a merge left its marks",
            next_step=command,
        ) from error


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or any(type(count) is not int or count < 1 for count in value.values()):
        raise TypeError
    return value


def of_lock(project: Project, lock: Lock) -> Kernels | None:
    """What was read of this very lock; None when nothing was, or of another lock."""
    kernels = load(project, lock.name) if cuda(lock) else None
    return kernels if kernels and kernels.lock == lock.digest else None


def stale(project: Project, lock: Lock) -> list[Finding]:
    """Whether gpus.json is of another lock. A stack without one was never read: that is no finding."""
    kernels = load(project, lock.name)
    if kernels is None or kernels.lock == lock.digest:
        return []
    return [Finding(f"{FILE} was read from another lock", f"vetted gpus {lock.name} --record")]
