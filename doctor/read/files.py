"""Untrusted files and folders: only regular files are opened, and reading stops at a limit.

A pipe blocks its reader, a device never ends, and a folder may have a million names. The doctor reads every file of an
environment, and every file named on its command line, through this module.
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
# O_NONBLOCK: a file that became a pipe after the check does not block. Only O_RDONLY exists on every system.
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
    """What the user named cannot be read; the message says why."""


@contextmanager
def opened(path: Name) -> Iterator[BinaryIO]:
    """A regular file, open. Raises OSError for anything else, without opening it: opening a device may have effects."""
    try:
        _check_regular(os.stat(path))  # noqa: PTH116
        handle = os.open(path, FLAGS)
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name contains a NUL") from error
    with open(handle, "rb", buffering=0) as file:  # noqa: PTH123
        _check_regular(os.fstat(handle))
        yield file


def not_text(sample: bytes) -> str | None:
    """What a sample of a file is where it is no text: in words for an error. None for text.

    NULs alone say nothing: a log that was cut while it was written begins with some.
    """
    if sample[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "is UTF-16: iconv -f UTF-16 -t UTF-8 makes a text of it"
    letters = sample.replace(b"\0", b"")
    if not letters:
        return "is empty of text" if sample else None
    if sample[:4] in (b"\x7fELF", b"PK\x03\x04") or sample[:2] == b"\x1f\x8b":
        return "is binary, not text"
    readable = letters.decode("utf-8", "replace")
    odd = sum(letter == "\ufffd" or (letter < " " and letter not in "\t\n\r\x1b\x08\x0c") for letter in readable)
    if odd <= len(readable) / 5:
        return None
    if _may_be_gbk(letters):
        return "is not UTF-8: if it is Chinese, iconv -f GBK -t UTF-8 makes a text of it"
    return "is binary, not text"


def _may_be_gbk(sample: bytes) -> bool:
    """Whether bytes can be Chinese text in GBK or GB18030. The last character may be cut."""
    letters = sample.decode("gb18030", "ignore")
    foreign = [letter for letter in letters if letter > "\x7f"]
    ideographs = sum("\u3000" <= letter <= "\u9fff" or "\uff00" <= letter <= "\uffef" for letter in foreign)
    lost = len(sample) - len(letters.encode("gb18030"))
    printable = all(letter >= " " or letter in "\t\n\r\x1b" for letter in letters)
    return printable and lost <= 3 and ideographs > 0.9 * len(foreign)


def head(path: Name, limit: int) -> tuple[bytes, bool]:
    """The first `limit` bytes of a regular file, and whether there are more. Raises OSError."""
    parts, left = [], limit + 1
    with opened(path) as file:
        while left and (chunk := file.read(min(left, 1024 * 1024))):
            parts.append(chunk)
            left -= len(chunk)
    data = b"".join(parts)
    return data[:limit], len(data) > limit


def text(path: Name, limit: int) -> str:
    """The first `limit` bytes of a regular file as text; "" where it cannot be read."""
    try:
        return head(path, limit)[0].decode("utf-8", "replace")
    except OSError:
        return ""


def names(folder: Name) -> tuple[list[str], bool]:
    """The names in a folder, sorted, and whether there are more than MOST_NAMES. Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            entry_names = [entry.name for entry in itertools.islice(entries, MOST_NAMES + 1)]
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name contains a NUL") from error
    return sorted(entry_names[:MOST_NAMES]), len(entry_names) > MOST_NAMES


def matching(folder: Path, pattern: str, most: int = 64) -> list[Path]:
    """The first entries of a folder whose names match a pattern; none where it cannot be listed."""
    try:
        return [folder / name for name in fnmatch.filter(names(folder)[0], pattern)[:most]]
    except OSError:
        return []


# Unlike the methods of Path, these never raise: a name may be too long, or its folder not searchable.


def is_file(path: Name) -> bool:
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Name) -> bool:
    return os.path.isdir(path)  # noqa: PTH112


def exists(path: Name) -> bool:
    return os.path.exists(path)  # noqa: PTH110


def why(error: OSError) -> str:
    """The reason in a system error, without its path."""
    return error.strerror or str(error)


def _check_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in KINDS if is_kind(status.st_mode)), "no file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file")
