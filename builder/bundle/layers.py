"""Layers of an image without the files that a host has, and how they are put together there, byte for byte.

A layer is a tar archive. What travels is the archive with the contents of these files cut out, and a list of the cuts.
On the host each cut is filled from a file with that sha256. The result has to have the layer's diff_id, so nothing but
the same archive passes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import zstandard
from pydantic import ConfigDict, TypeAdapter, ValidationError

from builder.base import errors, reading
from builder.image import oci
from builder.image.oci import Layer

CHUNK = 1 << 20
LEVEL = 7
ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"


class Cut(NamedTuple):
    """A content that is not there: where it begins in the archive, and what it is."""

    offset: int
    size: int
    sha256: str


_CUTS = TypeAdapter(list[Cut], config=ConfigDict(strict=True))


def cuts_of(layout: Path, layer: Layer, present: Mapping[str, int]) -> list[Cut]:
    """The contents of a layer's files that are present (sha256 to bytes)."""
    sizes, cuts = set(present.values()), []
    with oci.tar(layout, layer) as archive:
        for member in archive:
            if not member.isreg() or member.issparse() or member.size not in sizes:
                continue
            if content := archive.extractfile(member):
                digest = hashlib.file_digest(content, "sha256").hexdigest()  # type: ignore[arg-type]
                if present.get(digest) == member.size:
                    cuts.append(Cut(member.offset_data, member.size, digest))
    return cuts


def write(layout: Path, layer: Layer, cuts: Sequence[Cut], target: Path) -> None:
    """Write a layer without these contents, compressed; the list of them beside it."""
    with (
        oci.decompressed(oci.blob(layout, layer.digest), layer.media_type) as source,
        target.open("wb") as file,
        zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as packed,
    ):
        at = 0
        for cut in cuts:
            _pass(source, cut.offset - at, packed)
            _pass(source, cut.size, None)
            at = cut.offset + cut.size
        _pass(source, None, packed)
    list_beside(target).write_text(json.dumps(cuts) + "\n")


def list_beside(file: Path) -> Path:
    """The file with the cuts of a layer."""
    return file.with_name(f"{file.name}.cuts.json")


def read_cuts(file: Path) -> list[Cut]:
    """The cuts of a layer's file; none when it travelled whole. Raises BadInputError."""
    path = list_beside(file)
    if not path.exists():
        return []
    try:
        cuts = _CUTS.validate_json(reading.content(path, path.name))
        ends = [0, *(cut.offset + cut.size for cut in cuts)]
        if any(cut.offset < end or cut.size < 0 for cut, end in zip(cuts, ends, strict=False)):
            raise ValueError("they overlap")
    except (ValidationError, ValueError, RecursionError) as error:
        raise changed(f"{path.name}: {str(error).splitlines()[0]}") from error
    return cuts


def rebuilt(file: Path, media_type: str, cuts: Sequence[Cut], present: Mapping[str, Path]) -> Iterator[bytes]:
    """The archive of a layer, with every cut filled. Its digest is for the caller to compare. Raises BadInputError."""
    try:
        with oci.decompressed(file, media_type) as source:
            at = 0
            for cut in cuts:
                yield from _chunks(source, cut.offset - at)
                with present[cut.sha256].open("rb") as content:
                    yield from _chunks(content, cut.size)
                at = cut.offset + cut.size
            yield from _chunks(source, None)
    except oci.UNREADABLE as error:
        raise changed(f"a layer, or a file of the host, cannot be read: {error}") from error


def changed(what: str) -> errors.BadInputError:
    return errors.BadInputError(
        what,
        cause="a file of the host or of the unpacked bundle was changed",
        next_step="unpack the bundle again, into another --to; if a file of the host has changed, make it again",
    )


def _chunks(source: IO[bytes], size: int | None) -> Iterator[bytes]:
    """The next bytes of a stream, or all that are left."""
    while size is None or size:
        chunk = source.read(CHUNK if size is None else min(CHUNK, size))
        if not chunk:
            if size:
                raise changed("a layer, or a file of the host, is shorter than it was")
            return
        size = None if size is None else size - len(chunk)
        yield chunk


def _pass(source: IO[bytes], size: int | None, target: IO[bytes] | zstandard.ZstdCompressionWriter | None) -> None:
    for chunk in _chunks(source, size):
        if target is not None:
            target.write(chunk)
