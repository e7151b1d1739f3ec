"""Shared objects: the libraries they need, the symbols they import and define. Read from the file, never loaded.

Only 64-bit little-endian ELF, the format of every wheel of the stack. A file may lie: every offset and count in it is
checked against the file's size and a limit, and a file that fails a check raises NotElfError.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from doctor.read import files

MOST_SYMBOLS = 400_000
MOST_UNDEFINED = 20_000  # symbols that one file imports
MOST_SECTIONS = 4096
LONGEST = 8192  # bytes of a name
DYNAMIC, DYNSYM, GNU_HASH = 6, 11, 0x6FFFFFF6
NEEDED = 1


class NotElfError(Exception):
    """A file cannot be read as a shared object; the message says why."""


@dataclass
class Effort:
    """How many symbols may still be read, in all files together."""

    left: int = 5_000_000

    def spend(self, path: Path, symbols: int) -> None:
        self.left -= symbols
        if self.left < 0:
            raise NotElfError(f"{path}: it has more symbols than any library of the stack")


class SharedObject:
    """An open ELF file; each method reads only what it needs. Its methods raise NotElfError."""

    def __init__(self, path: Path, effort: Effort | None = None) -> None:
        self.path = path
        self.effort = effort or Effort()
        self._opened = files.opened(path)
        try:
            self._file = self._opened.__enter__()
        except OSError as error:
            raise NotElfError(f"{path}: {files.why(error)}") from error
        try:
            self._size = self._file.seek(0, os.SEEK_END)
            self._sections = {kind: (offset, size, link) for kind, offset, size, link in self._headers()}
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SharedObject:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _read(self, offset: int, size: int) -> bytes:
        if offset < 0 or offset + size > self._size:
            raise NotElfError(f"{self.path}: it is cut off")
        try:
            self._file.seek(offset)
            data = self._file.read(size) or b""
        except OSError as error:
            raise NotElfError(f"{self.path}: {files.why(error)}") from error
        if len(data) != size:
            raise NotElfError(f"{self.path}: it is cut off")
        return data

    def _unpack(self, form: str, offset: int) -> tuple[int, ...]:
        return struct.unpack(form, self._read(offset, struct.calcsize(form)))

    def _headers(self) -> Iterator[tuple[int, int, int, int]]:
        if self._size < 6 or self._read(0, 6) != b"\x7fELF\x02\x01":
            raise NotElfError(f"{self.path}: not a 64-bit ELF file")
        (start,) = self._unpack("<Q", 40)
        size, count = self._unpack("<HH", 58)
        if size != 64 or count > MOST_SECTIONS:
            raise NotElfError(f"{self.path}: its section headers make no sense")
        self._starts: list[tuple[int, int]] = []
        for number in range(count):
            _, kind, _, _, offset, length, link, _, _, _ = self._unpack("<IIQQQQIIQQ", start + 64 * number)
            self._starts.append((offset, length))
            if kind in (DYNAMIC, DYNSYM, GNU_HASH):
                if offset + length > self._size:
                    raise NotElfError(f"{self.path}: it is cut off")
                yield kind, offset, length, link

    def _strings(self, link: int) -> tuple[int, int]:
        if link >= len(self._starts):
            raise NotElfError(f"{self.path}: a table of strings is missing")
        return self._starts[link]

    def _text(self, table: tuple[int, int], offset: int) -> str:
        begin, end = table[0] + offset, min(table[0] + table[1], self._size)
        if not table[0] <= begin < end:
            raise NotElfError(f"{self.path}: a string is outside its table")
        name, ended, _ = self._read(begin, min(LONGEST, end - begin)).partition(b"\0")
        return name.decode("utf-8", "replace") if ended else ""

    def _dynamic(self, tag: int) -> list[str]:
        if DYNAMIC not in self._sections:
            return []
        offset, size, link = self._sections[DYNAMIC]
        table = self._strings(link)
        strings = []
        for place in range(offset, offset + min(size, 65536) - 15, 16):
            key, value = self._unpack("<QQ", place)
            if key == 0:
                break
            if key == tag:
                strings.append(self._text(table, value))
        return strings

    @property
    def needed(self) -> list[str]:
        """The libraries that the loader must load with it (DT_NEEDED)."""
        return self._dynamic(NEEDED)

    def undefined(self, prefixes: tuple[str, ...]) -> set[str]:
        """The symbols with these prefixes that another library must define."""
        if DYNSYM not in self._sections:
            return set()
        offset, size, link = self._sections[DYNSYM]
        table = self._strings(link)
        begin, end = table[0], min(table[0] + table[1], self._size)
        encoded = tuple(prefix.encode() for prefix in prefixes)
        longest = max(map(len, encoded))
        count = min(size // 24, MOST_SYMBOLS)
        self.effort.spend(self.path, count)
        symbols: set[str] = set()
        for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", self._read(offset, 24 * count)):
            # Defined here, or not global (a weak one may be missing).
            if section or info >> 4 != 1 or begin + name >= end:
                continue
            if self._read(begin + name, min(longest, end - begin - name)).startswith(encoded):
                symbols.add(self._text(table, name))
                if len(symbols) > MOST_UNDEFINED:
                    raise NotElfError(f"{self.path}: it asks for more symbols than any library offers")
        return symbols

    def offers(self, symbol: str) -> bool | None:
        """Does it define a symbol? Looked up in its hash table; None when it has no hash table."""
        if GNU_HASH not in self._sections or DYNSYM not in self._sections:
            return None
        hashes = self._sections[GNU_HASH][0]
        symbols, size, link = self._sections[DYNSYM]
        table = self._strings(link)
        buckets, first, words, shift = self._unpack("<IIII", hashes)
        if not buckets or not words:
            return False
        hashed = gnu_hash(symbol)
        (word,) = self._unpack("<Q", hashes + 16 + 8 * (hashed // 64 % words))
        if not (word >> hashed % 64) & 1 or not (word >> (hashed >> shift) % 64) & 1:
            return False
        bucket_table = hashes + 16 + 8 * words
        (number,) = self._unpack("<I", bucket_table + 4 * (hashed % buckets))
        chain = bucket_table + 4 * buckets
        for _ in range(MOST_SYMBOLS):
            self.effort.spend(self.path, 1)
            if number < first or number >= size // 24:
                return False
            (entry,) = self._unpack("<I", chain + 4 * (number - first))
            if entry | 1 == hashed | 1:
                name, _, _, section, _, _ = self._unpack("<IBBHQQ", symbols + 24 * number)
                if section and self._text(table, name) == symbol:
                    return True
            if entry & 1:
                return False
            number += 1
        return False


def gnu_hash(symbol: str) -> int:
    """The hash of a symbol in a table of type DT_GNU_HASH."""
    value = 5381
    for byte in symbol.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
