"""Comparing two builds of an image: the first place where they differ, down to the file."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.image import oci
from builder.image.oci import Image, Layer


@dataclass(frozen=True)
class Difference:
    """The first place where two builds differ."""

    what: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.what}\n  first  {self.first}\n  second {self.second}"


@dataclass(frozen=True)
class _File:
    """A member of a layer's archive. The fields are listed in a difference, by these names."""

    type: str
    mode: str
    owner: str
    mtime: float
    link: str
    content: str | None  # its SHA-256; None where it is no file
    extended_headers: Mapping[str, str]


def difference(first: Image, second: Image) -> Difference | None:
    """None when manifest, config and every layer are the same; otherwise the first difference.

    Raises BadInputError when a layer cannot be read.
    """
    try:
        return _difference(first, second)
    except oci.UNREADABLE as error:
        raise errors.BadInputError(
            f"a layer of {first.layout} or {second.layout} cannot be read: {error}", next_step="build again"
        ) from error


def _difference(first: Image, second: Image) -> Difference | None:
    for number, (a, b) in enumerate(zip(first.layers, second.layers, strict=False), start=1):
        if a.diff_id != b.diff_id:
            what = _first_file(_files(first.layout, a), _files(second.layout, b))
            return Difference(f"layer {number}: {what}", a.digest, b.digest)
        if a.digest != b.digest:
            return Difference(f"layer {number}: same content, compressed differently", a.digest, b.digest)
    if len(first.layers) != len(second.layers):
        return Difference("number of layers", str(len(first.layers)), str(len(second.layers)))
    if first.config != second.config:
        return Difference("config", first.config, second.config)
    if first.manifest != second.manifest:
        return Difference("manifest", first.manifest, second.manifest)
    return None


def _files(layout: Path, layer: Layer) -> Iterator[tuple[str, _File]]:
    with oci.tar(layout, layer) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            yield (
                member.name,
                _File(
                    type=member.type.decode(),
                    mode=oct(member.mode),
                    owner=f"{member.uid}:{member.gid}",
                    mtime=member.mtime,
                    link=member.linkname,
                    content=hashlib.file_digest(content, "sha256").hexdigest() if content else None,  # type: ignore[arg-type]
                    extended_headers={k: v for k, v in member.pax_headers.items() if k not in ("mtime", "path")},
                ),
            )


def _first_file(first: Iterator[tuple[str, _File]], second: Iterator[tuple[str, _File]]) -> str:
    while True:
        a, b = next(first, None), next(second, None)
        if a is None and b is None:
            return "the same files, in another encoding of the archive"
        if a is None or b is None:
            return f"/{(a or b or ('',))[0]} is in only one of them"
        if a[0] != b[0]:
            return f"/{a[0]} where the other has /{b[0]}"
        if a[1] != b[1]:
            names = [field.name for field in dataclasses.fields(_File)]
            unlike = [name.replace("_", " ") for name in names if getattr(a[1], name) != getattr(b[1], name)]
            return f"/{a[0]} differs in {', '.join(unlike)}"
