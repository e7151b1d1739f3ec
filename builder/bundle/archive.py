"""A tar archive with the same bytes wherever it is made, cut into parts that can be copied one by one."""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from builder.base import errors
from builder.base.project import sha256_file
from builder.bundle.unbundle.manifest import Part

CHUNK = 1 << 20
# With the tracked files of this project, which go along, below the 64 MiB that a borrowed machine takes at once.
PART_SIZE = "48M"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_size(text: str) -> int:
    """60M in bytes; K, M and G are powers of 1024. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * UNITS[match[2].upper()] if match else 0
    if size < 1024:
        raise ValueError(f"{text!r} is not a size such as 60M, of at least 1K")
    return size


def pack(tree: Mapping[str, Path], epoch: int) -> Iterator[bytes]:
    """The archive of these files, in the order of their names. Raises StorageError when one shrinks meanwhile."""
    total = 0
    for name, path in sorted(tree.items()):
        with path.open("rb") as file:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = path.stat().st_size, epoch, 0o644
            head = member.tobuf(tarfile.GNU_FORMAT)
            yield head
            left = member.size
            while chunk := file.read(min(CHUNK, left)) if left else b"":
                left -= len(chunk)
                yield chunk
            if left:
                raise errors.StorageError(f"{path} was cut short while it was read", next_step="run this again")
            padding = -member.size % tarfile.BLOCKSIZE
            yield bytes(padding)
            total += len(head) + member.size + padding
    yield bytes(2 * tarfile.BLOCKSIZE + -(total + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)


def split(stream: Iterable[bytes], folder: Path, stem: str, size: int) -> Iterator[Part]:
    """Cut a stream into parts of at most `size` bytes; a part that is there already, and whole, is left alone."""
    number, writer = 0, _Writer.begin(folder, f"{stem}.part001")
    try:
        for chunk in stream:
            view = memoryview(chunk)
            while view:
                if writer.size == size:
                    yield writer.end()
                    number += 1
                    writer = _Writer.begin(folder, f"{stem}.part{number + 1:03}")
                count = min(len(view), size - writer.size)
                writer.write(view[:count])
                view = view[count:]
        yield writer.end()
    finally:
        writer.drop()


@dataclass
class _Writer:
    """Writes a part; it gets its name when it is whole."""

    path: Path
    partial: Path
    file: IO[bytes]
    size: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    @classmethod
    def begin(cls, folder: Path, name: str) -> _Writer:
        partial = folder / f".{name}.partial"
        return cls(folder / name, partial, partial.open("wb"))

    def write(self, data: memoryview) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def end(self) -> Part:
        self.file.close()
        sha256 = self.digest.hexdigest()
        if self.path.is_file() and sha256_file(self.path) == f"sha256:{sha256}":
            self.partial.unlink()
        else:
            self.partial.replace(self.path)
        return Part(self.path.name, self.size, sha256)

    def drop(self) -> None:
        self.file.close()
        self.partial.unlink(missing_ok=True)
