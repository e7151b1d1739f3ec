"""The text of an error or a log: read as a stream and cut down to the lines that say something.

A log of any size is read once; what is kept is bounded, so that no pattern ever runs over more than that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from doctor.read import files
from doctor.read.files import UnreadableError

PART = 256 * 1024 * 1024  # bytes of the beginning and of the end of a log
CHUNK = 1024 * 1024
LONGEST = 2000  # characters of a line
KEPT = 400  # distinct lines that speak of an error
MOST = 100_000  # characters of all lines together: twice what 500 lines of a traceback hold
LOOKED = 20_000  # lines that speak of an error, the same ones counted again
TAIL = 120  # last lines, whatever they say
SPEAKS = re.compile(
    rb"rror|xception|arning|raceback|annot|an't|ncompatible|ailed|ot found|ot supported|equire|illed|SIG[A-Z]{3,}"
    rb"|ssert|nvalid|unexpected|undefined symbol|mismatch|must |too old|NCCL|CUDA|  File \"|\xe6\xb5\xae"
)
NUMBERS = re.compile(r"\d+")
WORD = re.compile(r"([\w.-]{300})[\w.-]+")  # longer than any name that means something
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(path: str) -> str:
    """What a log says; of one that is larger than anybody waits for, its beginning and its end."""
    try:
        with files.opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size <= 2 * PART:
                return "\n".join(condense(file))
            said = [*condense(_Part(file)), f"({(size - 2 * PART) // 1024**2} MB of this log were not read)"]
            file.seek(size - PART)
            return "\n".join([*said, *condense(_Part(file))])
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error


class _Part:
    """So much of a file from where it stands."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.left = file, PART

    def read(self, size: int) -> bytes:
        chunk = self.file.read(min(size, self.left))
        self.left -= len(chunk)
        return chunk


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def condense(file: Readable) -> list[str]:
    """The distinct lines that speak of an error, the first of each, in their order; and the last lines."""
    kept: dict[str, str] = {}
    looked, end = 0, b""
    for block in _blocks(file):
        place = 0
        while len(kept) < KEPT and looked < LOOKED:
            found = SPEAKS.search(block, place)
            if found is None:
                break
            begin = block.rfind(b"\n", 0, found.start()) + 1
            place = block.find(b"\n", found.end())
            line = block[max(begin, found.start() - LONGEST // 2) : place if place >= 0 else None][:LONGEST]
            text = _plain(line)
            kept.setdefault(NUMBERS.sub("0", text), text)
            looked += 1
            if place < 0:
                break
        end = (end + block)[-TAIL * LONGEST :]
    seen = set(kept.values())
    last = (_plain(line[-LONGEST:]) for line in end.split(b"\n")[-TAIL:])
    return _cut([*kept.values(), *(text for text in last if text not in seen)])


def plain(text: str) -> str:
    """An error's text as it was pasted, without colours, cut to a bearable length."""
    lines = WORD.sub(r"\1", COLOUR.sub("", text)).splitlines()
    if len(lines) > KEPT + TAIL:
        lines = lines[:KEPT] + lines[-TAIL:]
    return "\n".join(_cut([line[:LONGEST] for line in lines]))


def _cut(lines: list[str]) -> list[str]:
    """The first lines, and the last ones, as many as are looked at."""
    if sum(map(len, lines)) <= MOST:
        return lines
    first = list(_fitting(lines))
    return [*first, *reversed(list(_fitting(lines[: len(first) - 1 : -1])))]


def _fitting(lines: list[str]) -> Iterator[str]:
    left = MOST // 2
    for line in lines:
        left -= len(line)
        if left < 0:
            return
        yield line


def _blocks(file: Readable) -> Iterator[bytes]:
    """A stream in blocks that end where a line ends, but for a line that is longer than a block."""
    rest = b""
    while chunk := file.read(CHUNK):
        whole, newline, rest = (rest + chunk.replace(b"\r", b"\n")).rpartition(b"\n")
        if newline:
            yield whole
        elif len(rest) >= CHUNK:
            yield rest
            rest = b""
    if rest:
        yield rest


def _plain(line: bytes) -> str:
    return WORD.sub(r"\1", COLOUR.sub("", line.decode("utf-8", "replace")))
