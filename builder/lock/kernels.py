"""The kernels of a CUDA lock: which architectures each native library has, read from the locked files.

They are kept beside the lock in gpus.json, with the hash of each file that was read: the files of a stack take
gigabytes, and what is in them does not change. So only files that are new in the lock are read again. The lock for a
second platform has other files: gpus.arm64.json.
"""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, reading
from builder.base.project import Project, write
from builder.base.text import word
from builder.intent.platform import AMD64, PLATFORMS, Platform
from builder.lock import architecture, archives, fatbin
from builder.lock.audit import AuditFinding
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
    """All that was read. `files`: distribution -> the hash of its file. `sources`: distribution -> number of files that
    are compiled where they run.
    """

    files: Mapping[str, str]
    cuda: str
    libraries: tuple[Library, ...]
    sources: Mapping[str, int]


def cuda(lock: Lock) -> str | None:
    """The CUDA version of a lock, such as "13.0"; None for a CPU stack."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in lock.versions:
            return ".".join(lock.versions[name].split(".")[:2])
    return None


def path(project: Project, name: str, platform: Platform = AMD64) -> Path:
    return project.stack_dir(name) / platform.file(FILE)


def command(name: str, platform: Platform = AMD64) -> str:
    """What reads the kernels of a stack."""
    return f"vetted gpus {word(name)} --record" + ("" if platform is AMD64 else f" --platform {word(platform.name)}")


def record(project: Project, lock: Lock, scratch: Path, report: Callable[[str], None]) -> Kernels:
    """Read the kernels of a CUDA lock, and keep them in gpus.json. Raises NetworkError, BadInputError.

    What was read of the same file is not read again. Wheels without native code serve every platform.
    """
    hashes = _hashes(lock)
    known = {
        name: kernels
        for kernels in _earlier(project, lock.name)
        for name in hashes
        if kernels.files.get(name) == hashes[name]
    }
    new = [entry for entry in lock.python if entry.name not in known]
    files = archives.fetch(project, lock.stack, new, scratch, report)
    report("reading the kernels of the locked files")
    fresh = read(new, files, scratch)
    libraries = [
        library for name, earlier in known.items() for library in earlier.libraries if library.distribution == name
    ]
    kernels = Kernels(
        hashes,
        cuda(lock) or "",
        tuple(sorted([*libraries, *fresh.libraries], key=lambda library: (library.distribution, library.path))),
        {name: earlier.sources[name] for name, earlier in known.items() if name in earlier.sources}
        | dict(fresh.sources),
    )
    write(path(project, lock.name, lock.platform), text(kernels), scratch)
    return kernels


def _earlier(project: Project, name: str) -> Iterator[Kernels]:
    """What was read before, for every platform."""
    for platform in PLATFORMS.values():
        with suppress(errors.BadInputError):
            if kernels := load(project, name, platform):
                yield kernels


def _hashes(lock: Lock) -> dict[str, str]:
    return {entry.name: entry.sha256 for entry in lock.python}


def read(entries: Iterable[Entry], files: Mapping[Entry, Path], scratch: Path) -> Kernels:
    """Read the kernels in locked files. Raises BadInputError when one is damaged."""
    libraries: list[Library] = []
    sources: dict[str, int] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if count := _sources(files[entry]):
            sources[entry.name] = count
        if files[entry].suffix == ".whl":
            images = fatbin.of_wheel(files[entry], scratch)
            libraries += [Library(entry.name, name, images[name]) for name in sorted(images)]
    compiled = {library.distribution for library in libraries}
    # Headers beside compiled kernels are for programs of others.
    rest = {name: count for name, count in sources.items() if name not in compiled}
    return Kernels({}, "", tuple(libraries), rest)


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
    head = {"cuda": kernels.cuda, "driver": architecture.driver(kernels.cuda)}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines.append(f' "sources": {json.dumps(dict(sorted(kernels.sources.items())))},')
    rows = []
    for library in kernels.libraries:
        images = {name: library.images[name] for name in sorted(library.images, key=architecture.order)}
        rows.append(f"  {json.dumps([library.distribution, library.path, images])}")
    files = ",\n".join(f"  {json.dumps(name)}: {json.dumps(digest)}" for name, digest in sorted(kernels.files.items()))
    return "\n".join(["{", *lines, ' "libraries": [', ",\n".join(rows), " ],", ' "files": {', files, " }", "}"]) + "\n"


def load(project: Project, name: str, platform: Platform = AMD64) -> Kernels | None:
    """What was read of a stack; None when nothing was. Raises BadInputError when the file is damaged."""
    file = path(project, name, platform)
    where = project.relative(file)
    again = command(name, platform)
    try:
        document = reading.json_object(file, where, again)
    except FileNotFoundError:
        return None
    try:
        libraries = tuple(Library(_text(row[0]), _text(row[1]), _counts(row[2])) for row in document["libraries"])
        files = {name: _text(digest) for name, digest in document["files"].items()}
        return Kernels(files, _text(document["cuda"]), libraries, _counts(document["sources"]))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise errors.BadInputError(
            f"{where}: `files`, `cuda`, `sources` or `libraries` is not what `{again}` writes",
            cause="the file was edited, or a merge left its marks",
            next_step=again,
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
    """What was read of the files of this lock; None when nothing was, or of others."""
    kernels = load(project, lock.name, lock.platform) if cuda(lock) else None
    return kernels if kernels and kernels.files == _hashes(lock) else None


def of_parent(read: Kernels | None, parent: Lock) -> Kernels | None:
    """What was read of an extension, as far as it is of the parent's files: what was read of the parent alone."""
    if read is None:
        return None
    return Kernels(
        {name: digest for name, digest in read.files.items() if name in parent.versions},
        read.cuda,
        tuple(library for library in read.libraries if library.distribution in parent.versions),
        {name: count for name, count in read.sources.items() if name in parent.versions},
    )


def stale(project: Project, lock: Lock) -> list[AuditFinding]:
    """Whether gpus.json is of other files. A stack without one was never read: that is no finding."""
    kernels = load(project, lock.name, lock.platform)
    if kernels is None or kernels.files == _hashes(lock):
        return []
    what = f"{lock.platform.file(FILE)} was read from other files than the locked ones"
    return [AuditFinding(what, command(lock.name, lock.platform))]
