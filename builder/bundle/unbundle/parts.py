"""The parts of a bundle: each is checked and kept when it has arrived, and all of them are unpacked as one archive."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .manifest import PART_NAME, Manifest, Part
from .stop import NO, NOT_YET, StopError, readable_size, say

CHUNK = 1 << 20


def collect(folder: Path, manifest: Manifest, kept: Path) -> None:
    """Keep a checked copy of every part that has arrived. Raises StopError that names the missing and the damaged."""
    kept.mkdir(parents=True, exist_ok=True)
    missing, damaged = [], []
    for number, part in enumerate(manifest.parts, start=1):
        if (kept / part.name).is_file():
            continue
        source = folder / part.name
        if not source.is_file():
            missing.append(part.name)
            continue
        say(f"checking part {number} of {len(manifest.parts)}")
        if reason := _copy(source, part, kept):
            damaged.append(f"{part.name}: {reason}")
    own = {part.name for part in manifest.parts}
    foreign = sorted(path.name for path in folder.iterdir() if PART_NAME.fullmatch(path.name) and path.name not in own)
    if foreign:
        say(f"not part of this bundle, ignored: {', '.join(foreign)}")
    if damaged or missing:
        lines = [f"damaged: {line}" for line in damaged] + [f"missing: {name}" for name in missing]
        raise StopError(
            NO if damaged else NOT_YET,
            "\n".join([f"{len(damaged) + len(missing)} of {len(manifest.parts)} parts are not here yet", *lines]),
            "a copy that was interrupted, or parts of two bundles" if damaged else "not all files were copied",
            f"copy them to {folder}, then run this again; the other parts are kept",
        )


def _copy(source: Path, part: Part, kept: Path) -> str:
    """Copy a part if it is whole; else return what is wrong with it. It gets its name when it is whole."""
    size = source.stat().st_size
    if size != part.size:
        return f"{size} bytes, not {part.size}"
    partial = kept / f".{part.name}.partial"
    digest = hashlib.sha256()
    with source.open("rb") as read, partial.open("wb") as written:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            written.write(chunk)
    if digest.hexdigest() != part.sha256:
        partial.unlink()
        return f"its checksum is sha256:{digest.hexdigest()}, not sha256:{part.sha256}"
    partial.replace(kept / part.name)
    return ""


class Stream(io.RawIOBase):
    """Chunks of bytes as a file that can be read once."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._chunks, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def joined(kept: Path, parts: Sequence[Part]) -> Iterator[bytes]:
    """The content of the kept parts; each is checked again while it is read."""
    for part in parts:
        digest = hashlib.sha256()
        with (kept / part.name).open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != part.sha256:
            (kept / part.name).unlink()
            raise StopError(
                NO, f"{part.name} has changed since it was checked", "a failing disk", f"copy it again: {part.name}"
            )


def unpack(kept: Path, manifest: Manifest, final: Path) -> None:
    """Unpack the parts into a folder that gets its name when it is whole; files that are there already are skipped."""
    partial = final.with_name(f"{final.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    say(f"unpacking {readable_size(manifest.size)}")
    stream = io.BufferedReader(Stream(joined(kept, manifest.parts)), CHUNK)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                _extract(archive, member, partial)
        while stream.read(CHUNK):  # to the end, so that the last part is checked whole
            pass
    except StopError:
        shutil.rmtree(partial)  # some of the unpacked files may be wrong
        raise
    except tarfile.TarError as error:
        shutil.rmtree(partial)
        raise StopError(
            NO, f"the parts are not an archive: {error}", "the bundle was not made by `vetted bundle`"
        ) from error
    partial.rename(final)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one member; it gets its name when it is whole. Refuses all but plain files below `target`."""
    parts = member.name.split("/")
    if not member.isreg() or any(part in ("", ".", "..") for part in parts) or "\\" in member.name:
        raise StopError(
            NO,
            f"the archive holds {member.name!r}, which is not a plain file below its folder; nothing was written there",
            "the bundle was not made by `vetted bundle`",
            "do not use it",
        )
    path = target.joinpath(*parts)
    if path.is_file() and path.stat().st_size == member.size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial~")
    content = archive.extractfile(member)
    assert content is not None
    with content, partial.open("wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    partial.replace(path)
