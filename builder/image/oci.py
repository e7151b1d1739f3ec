"""OCI layouts: an image and its blobs, the files in its layers; and writing small layouts."""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zstandard

from builder.base import errors, quantities, strictjson
from builder.base.project import sha256, sha256_file
from builder.base.text import word

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LARGEST = 64 << 20  # bytes: no manifest, config or statement is larger
SMALL = 4 << 20  # bytes: no file of an image that is read into memory is larger
# What reading a damaged layer may raise.
UNREADABLE = (OSError, EOFError, tarfile.TarError, zstandard.ZstdError, zlib.error)


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
    media_type: str = MANIFEST

    @property
    def descriptor(self) -> dict[str, Any]:
        """The descriptor by which another manifest refers to it."""
        size = blob(self.layout, self.manifest).stat().st_size
        return {"mediaType": self.media_type, "digest": self.manifest, "size": size}

    @property
    def digests(self) -> tuple[str, ...]:
        """Its blobs: manifest, config and layers."""
        return (self.manifest, self.config, *(layer.digest for layer in self.layers))

    @property
    def size(self) -> int:
        """Bytes to pull, compressed."""
        return sum(layer.size for layer in self.layers)


def blob(layout: Path, digest: str) -> Path:
    """The path of a blob. Raises ValueError when the digest is none: it must not lead elsewhere."""
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not a digest")
    return layout / "blobs" / digest.replace(":", "/")


def read(layout: Path, manifest_digest: str | None = None) -> Image:
    """The only image of a layout, or the one with that digest. Raises BadInputError when it is missing or damaged."""
    try:
        (digest,) = (each for each in manifests(layout) if manifest_digest in (None, each))
        manifest = json_of(layout, digest)
        config = json_of(layout, manifest["config"]["digest"])
        layers = tuple(
            Layer(layer["digest"], diff_id, layer["mediaType"], layer["size"])
            for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        )
        for layer in layers:
            blob(layout, layer.digest)
        return Image(layout, digest, manifest["config"]["digest"], layers, manifest.get("mediaType") or MANIFEST)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise errors.BadInputError(
            f"{layout} is not an OCI layout of one image: {error}",
            cause="the folder was changed by hand, or a copy of it was cut short",
            next_step=f"rm -r {word(layout)}, then build again",
        ) from error


def manifests(layout: Path) -> list[str]:
    """The digests of the manifests in a layout's index. Raises OSError, KeyError, TypeError or ValueError."""
    return [str(descriptor["digest"]) for descriptor in descriptors(layout)]


def descriptors(layout: Path) -> list[dict[str, Any]]:
    """The descriptors in a layout's index. Raises OSError, KeyError, TypeError or ValueError."""
    return list(strictjson.loads(_small(layout / "index.json"))["manifests"])


def checked(layout: Path, digest: str) -> bytes:
    """The content of a small blob. Raises OSError or ValueError."""
    content = _small(blob(layout, digest))
    if sha256(content) != digest:
        raise ValueError(f"blob {digest} has other content")
    return content


def _small(path: Path) -> bytes:
    """The content of a file that a stranger may have written. Raises OSError or ValueError."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is not a file")  # reading a pipe would never end
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{path.name} is larger than {quantities.size(LARGEST)}")
    return content


def json_of(layout: Path, digest: str) -> Any:
    """The JSON of a blob. Raises OSError or ValueError."""
    return strictjson.loads(checked(layout, digest))


def damaged(image: Image) -> Iterator[str]:
    """The blobs of an image that are missing, or whose content does not have their digest."""
    sizes = {layer.digest: layer.size for layer in image.layers}
    with ThreadPoolExecutor() as pool:
        damages = pool.map(lambda digest: _damage(image.layout, digest, sizes.get(digest)), image.digests)
        yield from filter(None, damages)


def _damage(layout: Path, digest: str, size: int | None) -> str | None:
    path = blob(layout, digest)
    if not path.is_file():
        return f"{digest} is missing"
    # A sparse file of a terabyte takes no room, and hours to hash.
    if size not in (None, path.stat().st_size) or sha256_file(path) != digest:
        return f"{digest} has other content"
    return None


def labels(image: Image) -> dict[str, str]:
    """The labels in an image's config. Raises OSError or ValueError."""
    document = json_of(image.layout, image.config)
    config = document.get("config") if isinstance(document, dict) else None
    entries = config.get("Labels") if isinstance(config, dict) else None
    return {str(key): str(value) for key, value in entries.items()} if isinstance(entries, dict) else {}


def seed(layout: Path, earlier: Image) -> None:
    """Link the intact layers of an earlier image into the layout of the next one: BuildKit need not export them again.

    Links take no room, and the earlier image may be removed.
    """
    for layer in earlier.layers:
        source, target = blob(earlier.layout, layer.digest), blob(layout, layer.digest)
        try:
            if sha256_file(source) == layer.digest:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, target)
        except OSError:
            continue  # missing, or on another disk: BuildKit writes it


def sweep(image: Image) -> None:
    """Remove blobs that are in the layout of an image but do not belong to it."""
    for path in (image.layout / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in image.digests:
            path.unlink()


def begin(layout: Path) -> None:
    """Begin a new layout: `add` its blobs, then `finish` it."""
    (layout / "blobs" / "sha256").mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def add(layout: Path, content: bytes, media_type: str) -> dict[str, Any]:
    """Add a blob, and return its descriptor."""
    digest = sha256(content)
    blob(layout, digest).write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def finish(layout: Path, descriptors: Sequence[dict[str, Any]]) -> None:
    """Write the index of a layout."""
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": list(descriptors)}
    (layout / "index.json").write_text(json.dumps(index))


def files(image: Image, include: Callable[[str], bool]) -> Iterator[tuple[str, bytes | str]]:
    """The small files of an image whose paths `include` accepts: path, and content or, for a link, its target.

    A path that several layers have comes once for each layer, in their order. Raises BadInputError.
    """
    for name, size, content in members(image, include):
        if isinstance(content, str):
            yield name, content
        elif size <= SMALL:
            yield name, content.read()


def members(image: Image, include: Callable[[str], bool]) -> Iterator[tuple[str, int, IO[bytes] | str]]:
    """Like `files`, of any size: path, bytes, and a stream, to be read before the next one. Raises BadInputError."""
    try:
        for layer in image.layers:
            with tar(image.layout, layer) as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if not include(name):
                        continue
                    if member.issym():
                        yield name, 0, member.linkname
                    elif member.isfile() and (content := archive.extractfile(member)):
                        yield name, member.size, content
    except UNREADABLE as error:
        raise errors.BadInputError(
            f"a layer of {image.layout} cannot be read: {error}", next_step="build again"
        ) from error


@contextmanager
def tar(layout: Path, layer: Layer) -> Iterator[tarfile.TarFile]:
    """A layer, to be read as a stream, from its first member to its last."""
    with (
        decompressed(blob(layout, layer.digest), layer.media_type) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        yield archive


@contextmanager
def decompressed(path: Path, media_type: str) -> Iterator[IO[bytes]]:
    """The tar archive of a layer's file, to be read as a stream."""
    with path.open("rb") as raw:
        stream: IO[bytes]
        if media_type.endswith("+zstd"):
            stream = zstandard.ZstdDecompressor().stream_reader(raw)
        elif media_type.endswith("gzip"):
            stream = gzip.GzipFile(fileobj=raw)  # type: ignore[assignment]
        else:
            stream = raw
        with stream:
            yield stream
