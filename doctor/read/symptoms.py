"""The text of an error, or the lines of a log that matter.

A log of any size is read once, as a stream. What is kept of it has a limit, and so has the time of every later pattern.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from doctor.read import files
from doctor.read.files import UnreadableError

PART = 256 * 1024 * 1024  # bytes that are read of the beginning, and of the end, of a large log
CHUNK = 1024 * 1024
SAMPLE = 64 * 1024  # bytes that show whether a file is text
LONGEST = 2000  # characters of a line
KEPT = 400  # distinct lines about an error
MOST = 100_000  # characters of all lines together: twice what 500 lines of a traceback hold
LINES = 20_000  # lines about an error that are read, repeated ones too
TAIL = 120  # last lines, whatever they are about
TELLING = re.compile(
    rb"rror|xception|arning|raceback|annot|an't|ncompatible|ailed|ot found|ot supported|equire|illed|SIG[A-Z]{3,}"
    rb"|ssert|nvalid|unexpected|undefined symbol|mismatch|must |too old|NCCL|CUDA|  File \"|\xe6\xb5\xae"
)
FRAME = re.compile(r"\s*File \".+\", line \d+")
NUMBERS = re.compile(r"\d+")
LONG_WORD = re.compile(r"([\w.-]{300})[\w.-]+")  # longer than any name
# What Python puts in straight quotes, and people who retype an error do not.
_QUOTE = "[`'\"\u2018\u2019\u201c\u201d]?"
_PROSE = r"(?!(?:when|or|in|called|error|for|from|and|with|the|a|is|to|at)\b(?!\.\w))"
_NAME = rf"{_QUOTE}{_PROSE}([A-Za-z_]\w*(?:\.\w+)*){_QUOTE}(?!\.?[\w'-])"
_OWNER = rf"{_QUOTE}([A-Z]\w+|str|list|dict|tuple|int|float|bool|generator){_QUOTE}"  # no "an object"
UNQUOTED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"\b[Nn]o module named:? {_NAME}", r"No module named '\1'"),
        (rf"\bunexpected keyword argument {_NAME}", r"unexpected keyword argument '\1'"),
        (rf"\bcannot import name {_NAME} from (?!partially initialized ){_NAME}", r"cannot import name '\1' from '\2'"),
        (rf"\bmodule {_NAME} has no attribute {_NAME}", r"module '\1' has no attribute '\2'"),
        (rf"(?<![\w.]){_OWNER} object has no attribute {_NAME}", r"'\1' object has no attribute '\2'"),
    )
)
PACKAGES = re.compile(r'File "([^"\n]{1,500}?[\\/](?:site|dist)-packages)[\\/]')
# "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-32GB", "GeForce RTX 3090 Ti"; not "NVIDIA CUDA 12" or "NVIDIA driver".
GPU = re.compile(
    r"\b(?:(?:NVIDIA|Tesla|GeForce|Quadro) )+(?:(?:RTX|GTX|TITAN) (?:PRO )?\w+|[A-Z]{1,2}\d{1,4}\w?(?:-\w+)*)"
    r"(?: (?:Ti|SUPER|PCIe|NVL|Ada|\d+GB|HBM\d\w*)\b)*"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read(path: str) -> str:
    """The telling lines of a log; of one above 512 MiB those of its beginning and its end. Raises UnreadableError."""
    try:
        with files.opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            odd = files.not_text(file.read(SAMPLE))
            if odd and size > SAMPLE:  # its end may be a log all the same
                file.seek(size - SAMPLE)
                odd = files.not_text(file.read(SAMPLE))
            if odd:
                raise UnreadableError(f"{path} {odd}")
            file.seek(0)
            if size <= 2 * PART:
                return "\n".join(condense(file))
            beginning = [*condense(_Part(file)), f"({(size - 2 * PART) // 1024**2} MiB of this log were not read)"]
            file.seek(size - PART)
            return "\n".join([*beginning, *condense(_Part(file))])
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error


class _Part:
    """The next PART bytes of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.left = file, PART

    def read(self, size: int) -> bytes:
        chunk = self.file.read(min(size, self.left))
        self.left -= len(chunk)
        return chunk


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def condense(file: Readable) -> list[str]:
    """The distinct lines about an error, each where it first appears, then the last lines of the log in their order."""
    kept: dict[str, tuple[int, str]] = {}  # a line without its numbers -> where it first appears, and the line
    count, start, end = 0, 0, b""
    for block in _blocks(file):
        place = 0
        while len(kept) < KEPT and count < LINES:
            match = TELLING.search(block, place)
            if match is None:
                break
            begin = block.rfind(b"\n", 0, match.start()) + 1
            place = block.find(b"\n", match.end())
            line = block[max(begin, match.start() - LONGEST // 2) : place if place >= 0 else None][:LONGEST]
            text = _plain(line)
            kept.setdefault(NUMBERS.sub("0", text), (start + begin, text))
            count += 1
            if place < 0:
                break
            if FRAME.match(text):  # Python prints the code of a frame below it
                code = _plain(block[place : place + LONGEST].lstrip(b"\n").partition(b"\n")[0])
                if code:
                    kept.setdefault(code, (start + place, code))
        end = (end + b"\n" + block)[-TAIL * LONGEST :]
        start += len(block) + 1
    last = end.lstrip(b"\n").split(b"\n")[-TAIL:]
    tail = start - sum(len(line) + 1 for line in last)  # where the last lines begin
    earlier = [text for where, text in kept.values() if where < tail]
    said = set(earlier)
    ending = (_plain(line[-LONGEST:]) for line in last)
    return _cut([*earlier, *(text for text in ending if text not in said)])


def plain(text: str) -> str:
    """The text of an error that a user pasted, without colours, with Python's own quotes, cut to a limit."""
    lines = LONG_WORD.sub(r"\1", COLOUR.sub("", text)).splitlines()
    if len(lines) > KEPT + TAIL:
        lines = lines[:KEPT] + lines[-TAIL:]
    return "\n".join(_quoted(line) for line in _cut([line[:LONGEST] for line in lines]))


def gpu_models(text: str) -> list[str]:
    """The models of GPUs that a log names, in its order."""
    return list(dict.fromkeys(GPU.findall(text)))


def package_folders(text: str) -> list[str]:
    """The folders of installed packages that tracebacks in a text name, in their order."""
    return list(dict.fromkeys(PACKAGES.findall(text)))


def package_files(text: str, folder: str) -> list[str]:
    """The files below a folder of packages that tracebacks in a text name."""
    named = re.findall(r'File "([^"\n]{1,1000})"', text)
    return list(dict.fromkeys(path for path in named if path.startswith((f"{folder}/", f"{folder}\\"))))


def _quoted(line: str) -> str:
    for pattern, replacement in UNQUOTED:
        line = pattern.sub(replacement, line)
    return line


def _cut(lines: list[str]) -> list[str]:
    """The first and the last lines, MOST characters in all."""
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
    """A stream in blocks that end where a line ends; a line longer than a block is split."""
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
    return LONG_WORD.sub(r"\1", COLOUR.sub("", line.decode("utf-8", "replace")))
