"""The text of an error or a log: read as a stream and cut down to the lines that say something.

A log of any size is read once; what is kept is bounded, so that no pattern ever runs over more than that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from doctor.environment import UnreadableError

CHUNK = 1024 * 1024
LONGEST = 2000  # characters of a line
KEPT = 400  # distinct lines that speak of an error
TAIL = 120  # last lines, whatever they say
SPEAKS = re.compile(
    rb"rror|xception|arning|raceback|annot|an't|ncompatible|ailed|ot found|ot supported|equire|illed|SIG[A-Z]{3,}"
    rb"|ssert|nvalid|unexpected|undefined symbol|mismatch|must |too old|NCCL|CUDA|  File \"|\xe6\xb5\xae"
)
NUMBERS = re.compile(r"\d+")
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(path: str) -> str:
    """What a log says."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return "\n".join(condense(file))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror or error}") from error


def condense(file: BinaryIO) -> list[str]:
    """The distinct lines that speak of an error, the first of each, in their order; and the last lines."""
    kept: dict[str, str] = {}
    tail: list[bytes] = []
    for line in _lines(file):
        tail.append(line)
        if len(tail) > 2 * TAIL:
            del tail[:TAIL]
        if SPEAKS.search(line) and len(kept) < KEPT:
            text = _plain(line)
            kept.setdefault(NUMBERS.sub("0", text), text)
    seen = set(kept.values())
    return [*kept.values(), *(text for text in map(_plain, tail[-TAIL:]) if text not in seen)]


def plain(text: str) -> str:
    """An error's text as it was pasted, without colours, cut to a bearable length."""
    lines = COLOUR.sub("", text).splitlines()
    if len(lines) > KEPT + TAIL:
        lines = lines[:KEPT] + lines[-TAIL:]
    return "\n".join(line[:LONGEST] for line in lines)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Lines of a stream, each cut to a bearable length; a file without line ends is many lines."""
    rest = b""
    while True:
        chunk = file.read(CHUNK)
        if not chunk:
            break
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield line[:LONGEST]
        if len(rest) > LONGEST:
            yield rest[:LONGEST]
            rest = b""
    if rest:
        yield rest[:LONGEST]


def _plain(line: bytes) -> str:
    return COLOUR.sub("", line.decode("utf-8", "replace"))
