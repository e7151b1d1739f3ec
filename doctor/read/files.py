"""Files and folders of an environment that nobody vouches for: only regular files are opened, only so much is read.

A pipe blocks its reader, a device never ends, and a folder may hold a million names. Everything that the doctor reads
of an environment, or of what it is given, is read here.
"""

from __future__ import annotations

import errno
import fnmatch
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Union

Name = Union[str, Path]
MOST_NAMES = 100_000  # names in one folder
# O_NONBLOCK: what became a pipe since it was looked at does not block. None of them but O_RDONLY is everywhere.
FLAGS = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
    FLAGS |= getattr(os, _flag, 0)
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnreadableError(Exception):
    """What was named cannot be looked at; the message says why."""


@contextmanager
def opened(path: Name) -> Iterator[BinaryIO]:
    """A regular file. Raises OSError for everything else, before it is opened: to open a device may change it."""
    try:
        _regular(os.stat(path))  # noqa: PTH116
        handle = os.open(path, FLAGS)
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name holds a NUL") from error
    with open(handle, "rb", buffering=0) as file:  # noqa: PTH123
        _regular(os.fstat(handle))
        yield file


def head(path: Name, limit: int) -> tuple[bytes, bool]:
    """The first bytes of a regular file, and whether there are more. Raises OSError."""
    parts, left = [], limit + 1
    with opened(path) as file:
        while left and (chunk := file.read(min(left, 1024 * 1024))):
            parts.append(chunk)
            left -= len(chunk)
    data = b"".join(parts)
    return data[:limit], len(data) > limit


def text(path: Name, limit: int) -> str:
    """The beginning of a regular file as text, "" where it cannot be read."""
    try:
        return head(path, limit)[0].decode("utf-8", "replace")
    except OSError:
        return ""


def names(folder: Name) -> tuple[list[str], bool]:
    """The names in a folder in order, and whether there are more than are read. Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            found = [entry.name for entry in itertools.islice(entries, MOST_NAMES + 1)]
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name holds a NUL") from error
    return sorted(found[:MOST_NAMES]), len(found) > MOST_NAMES


def matching(folder: Path, pattern: str, most: int = 64) -> list[Path]:
    """The first entries of a folder whose names match a pattern; none where it cannot be listed."""
    try:
        return [folder / one for one in fnmatch.filter(names(folder)[0], pattern)[:most]]
    except OSError:
        return []


# Unlike those of Path, these never raise: a name may be too long, or lie in a folder that may not be searched.


def is_file(path: Name) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Name) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Name) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def why(error: OSError) -> str:
    return error.strerror or str(error)


def _regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((said for of_kind, said in KINDS if of_kind(found.st_mode)), "no file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")
