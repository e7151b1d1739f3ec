"""Reading OCI layouts: what an image is, and where two builds of it differ."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from builder import errors


@dataclass(frozen=True)
class Layer:
    digest: str
    diff_id: str  # the digest of the uncompressed tar
    media_type: str
    size: int  # bytes, compressed


@dataclass(frozen=True)
class Image:
    """An image in an OCI layout folder."""

    layout: Path
    manifest: str  # digests: sha256:...
    config: str
    layers: tuple[Layer, ...]

    @property
    def size(self) -> int:
        """Bytes to pull, compressed."""
        return sum(layer.size for layer in self.layers)


def blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / digest.replace(":", "/")


def read(layout: Path) -> Image:
    """The one image of a layout. Raises BadInputError when there is none or it is damaged."""
    try:
        index = json.loads((layout / "index.json").read_text())
        (descriptor,) = index["manifests"]
        manifest = _json(layout, descriptor["digest"])
        config = _json(layout, manifest["config"]["digest"])
        layers = tuple(
            Layer(layer["digest"], diff_id, layer["mediaType"], layer["size"])
            for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        )
        return Image(layout, descriptor["digest"], manifest["config"]["digest"], layers)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise errors.BadInputError(
            f"{layout} is not an OCI layout of one image: {error}",
            cause="the folder was changed by hand, or a copy of it was cut short",
            next_step=f"rm -r {layout}, then build again",
        ) from error


def _json(layout: Path, digest: str) -> Any:
    content = blob(layout, digest).read_bytes()
    if "sha256:" + hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(f"blob {digest} has other content")
    return json.loads(content)


@dataclass(frozen=True)
class Difference:
    """The first place where two builds differ."""

    what: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.what}\n  first  {self.first}\n  second {self.second}"


def compare(first: Image, second: Image) -> Difference | None:
    """None when manifest, config and every layer are the same; else the first difference, down to the file.

    Raises BadInputError when a layer cannot be read.
    """
    try:
        return _compare(first, second)
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError, zlib.error) as error:
        raise errors.BadInputError(
            f"a layer of {first.layout} or {second.layout} cannot be read: {error}", next_step="build again"
        ) from error


def _compare(first: Image, second: Image) -> Difference | None:
    for number, (a, b) in enumerate(zip(first.layers, second.layers, strict=False), start=1):
        if a.diff_id != b.diff_id:
            found = _first_file(first.layout, a, second.layout, b)
            return Difference(f"layer {number}: {found}", a.digest, b.digest)
        if a.digest != b.digest:
            return Difference(f"layer {number}: same content, compressed differently", a.digest, b.digest)
    if len(first.layers) != len(second.layers):
        return Difference("number of layers", str(len(first.layers)), str(len(second.layers)))
    if first.config != second.config:
        return Difference("config", first.config, second.config)
    if first.manifest != second.manifest:
        return Difference("manifest", first.manifest, second.manifest)
    return None


@contextmanager
def _tar(layout: Path, layer: Layer) -> Iterator[tarfile.TarFile]:
    with blob(layout, layer.digest).open("rb") as raw:
        stream: IO[bytes]
        if layer.media_type.endswith("+zstd"):
            stream = zstandard.ZstdDecompressor().stream_reader(raw)
        elif layer.media_type.endswith("gzip"):
            stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        else:
            stream = raw
        with stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive


def _entries(layout: Path, layer: Layer) -> Iterator[tuple[str, dict[str, Any]]]:
    with _tar(layout, layer) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            yield (
                member.name,
                {
                    "type": member.type.decode(),
                    "mode": oct(member.mode),
                    "owner": f"{member.uid}:{member.gid}",
                    "mtime": member.mtime,
                    "link": member.linkname,
                    "content": hashlib.file_digest(content, "sha256").hexdigest() if content else None,  # type: ignore[arg-type]
                    "extended headers": {k: v for k, v in member.pax_headers.items() if k not in ("mtime", "path")},
                },
            )


def _first_file(first: Path, a: Layer, second: Path, b: Layer) -> str:
    left, right = _entries(first, a), _entries(second, b)
    while True:
        one, two = next(left, None), next(right, None)
        if one is None and two is None:
            return "the same files, in another encoding of the archive"
        if one is None or two is None:
            return f"/{(one or two or ('', {}))[0]} is in only one of them"
        if one[0] != two[0]:
            return f"/{one[0]} where the other has /{two[0]}"
        unlike = [key for key in one[1] if one[1][key] != two[1][key]]
        if unlike:
            return f"/{one[0]} differs in {', '.join(unlike)}"
