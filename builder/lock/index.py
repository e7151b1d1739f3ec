"""What the package index and the wheelhouse of this machine offer: files of distributions, their sizes and bytes."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from packaging.pylock import Package, PackageSdist, PackageWheel, Pylock
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from builder.base import errors
from builder.base.download import Downloader, is_local
from builder.intent.stack import Stack
from builder.lock import solver


@dataclass(frozen=True)
class File:
    """One file of a distribution, as an index or the wheelhouse offers it."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str
    size: int | None = None  # in bytes, where the index says so
    uploaded: datetime | None = None  # where the index says so

    @property
    def is_wheel(self) -> bool:
        return self.filename.endswith(".whl")

    @property
    def is_remote(self) -> bool:
        return not is_local(self.url)


def tags(stack: Stack) -> list[Tag]:
    """The wheel tags that a stack's Python and glibc can run, the most specific first."""
    version = tuple(int(part) for part in stack.python.split("."))
    machine = stack.platform.machine
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(solver.GLIBC[stack.debian], 4, -1)]
    for minor, alias in {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}.items():
        platforms.insert(platforms.index(f"manylinux_2_{minor}_{machine}") + 1, f"{alias}_{machine}")
    platforms.append(f"linux_{machine}")
    interpreter = f"cp{version[0]}{version[1]}"
    return [*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)]


def offers(stack: Stack, scratch: Path, pins: Sequence[str]) -> tuple[dict[str, list[File]], str]:
    """The files of pinned distributions that fit a stack, by normalised name; and what uv printed, such as warnings.

    The wheel with the most specific tag comes first, a source distribution last. Raises BadInputError when there is
    none, NetworkError when the index does not answer.
    """
    target = scratch / "pylock.toml"
    target.unlink(missing_ok=True)
    result = solver.compile_pins(stack, scratch, pins, ["--no-deps", "--format", "pylock.toml", "-o", str(target)])
    if result.returncode != 0:
        raise errors.BadInputError(
            f"the locked versions cannot be found\n{result.stderr.strip()}",
            cause="a release was deleted, or the lock was edited",
            next_step="vetted lock",
        )
    order = {tag: rank for rank, tag in enumerate(tags(stack))}
    files: dict[str, list[File]] = {}
    for package in Pylock.from_dict(tomllib.loads(target.read_text())).packages:
        listed: list[PackageWheel | PackageSdist] = [
            *(package.wheels or ()),
            *([package.sdist] if package.sdist else []),
        ]
        known = [_file(package, file) for file in listed if "sha256" in file.hashes]
        if listed and not known:
            raise errors.BadInputError(
                f"{package.name} {package.version}: the index lists no SHA-256 of its files, which a lock has",
                cause="an old index, or a mirror that lists other hashes or none",
                next_step="ask another index: UV_DEFAULT_INDEX, or set VETTED_WHEELHOUSE to a folder with the files",
            )
        wheels = [file for file in known if file.is_wheel]
        ranked = sorted((rank, file.filename, file) for file in wheels if (rank := _rank(file, order)) is not None)
        fitting = [file for _, _, file in ranked] + [file for file in known if not file.is_wheel]
        if not fitting:
            raise errors.BadInputError(
                f"{package.name} {package.version}: no file fits Python {stack.python} on {stack.debian}",
                next_step="choose another version in stack.toml",
            )
        files[package.name] = fitting
    return files, result.stderr


def _file(package: Package, source: PackageWheel | PackageSdist) -> File:
    url = source.url or source.path or ""
    local = Path(unquote(url.removeprefix("file://")))
    size = source.size or (local.stat().st_size if local.is_file() else None)
    digest = source.hashes["sha256"]
    return File(package.name, str(package.version), source.filename, url, digest, size, source.upload_time)


def _rank(file: File, order: dict[Tag, int]) -> int | None:
    return min((order[tag] for tag in parse_wheel_filename(file.filename)[3] if tag in order), default=None)


def size(file: File) -> int | None:
    """The bytes of a file: as the index says, else as its host does; None when neither does."""
    if file.size is not None or not file.is_remote:
        return file.size
    try:
        with Downloader() as downloader:
            return downloader.size(file.url)
    except errors.NetworkError:
        return None


def download(file: File) -> bytes:
    """The bytes of one (small) file. Raises NetworkError."""
    with Downloader() as downloader:
        return downloader.content(file.url, file.size)
