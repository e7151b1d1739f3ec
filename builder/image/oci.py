"""OCI layouts: what an image is, what its files say, where two builds of it differ; and writing small ones."""

from __future__ import annotations

import gzip
import hashlib
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

from builder.base import errors, strictjson
from builder.base.project import sha256, sha256_file

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LARGEST = 64 << 20  # bytes: no manifest, config or statement is larger
SMALL = 4 << 20  # bytes: no file of an image that is read into memory is larger


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
        """How another manifest names it."""
        size = blob(self.layout, self.manifest).stat().st_size
        return {"mediaType": self.media_type, "digest": self.manifest, "size": size}

    @property
    def size(self) -> int:
        """Bytes to pull, compressed."""
        return sum(layer.size for layer in self.layers)


def blob(layout: Path, digest: str) -> Path:
    """Where a blob lies. Raises ValueError when that is no digest: it becomes a path."""
    if not DIGEST.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is not a digest")
    return layout / "blobs" / digest.replace(":", "/")


def read(layout: Path, wanted: str | None = None) -> Image:
    """The one image of a layout, or the one with that digest. Raises BadInputError when it is not there or damaged."""
    try:
        (digest,) = manifests(layout) if wanted is None else [one for one in manifests(layout) if one == wanted]
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
            next_step=f"rm -r {layout}, then build again",
        ) from error


def manifests(layout: Path) -> list[str]:
    """The digests of the manifests that a layout's index names. Raises OSError, KeyError, TypeError or ValueError."""
    return [str(descriptor["digest"]) for descriptor in descriptors(layout)]


def descriptors(layout: Path) -> list[dict[str, Any]]:
    """What a layout's index names. Raises OSError, KeyError, TypeError or ValueError."""
    return list(strictjson.loads(_small(layout / "index.json"))["manifests"])


def checked(layout: Path, digest: str) -> bytes:
    """The content of a small blob. Raises OSError or ValueError."""
    content = _small(blob(layout, digest))
    if sha256(content) != digest:
        raise ValueError(f"blob {digest} has other content")
    return content


def _small(path: Path) -> bytes:
    """The content of what a stranger may have written. Raises OSError or ValueError."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path.name} is not a file")  # a pipe would be waited for
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"{path.name} is larger than {LARGEST >> 20} MB")
    return content


def json_of(layout: Path, digest: str) -> Any:
    """The JSON of a blob. Raises OSError or ValueError."""
    return strictjson.loads(checked(layout, digest))


def damaged(image: Image) -> Iterator[str]:
    """What of an image is not there, or has other content than its digest says."""
    sizes = {layer.digest: layer.size for layer in image.layers}
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda digest: _damage(image.layout, digest, sizes.get(digest)), _digests(image))
        yield from filter(None, found)


def _digests(image: Image) -> tuple[str, ...]:
    return (image.manifest, image.config, *(layer.digest for layer in image.layers))


def _damage(layout: Path, digest: str, size: int | None) -> str | None:
    path = blob(layout, digest)
    if not path.is_file():
        return f"{digest} is missing"
    # A sparse file of a terabyte takes no room, and hours to hash.
    if size not in (None, path.stat().st_size) or sha256_file(path) != digest:
        return f"{digest} has other content"
    return None


def labels(image: Image) -> dict[str, str]:
    """What an image's config says of it. Raises OSError or ValueError."""
    config = json_of(image.layout, image.config)
    said = config.get("config") if isinstance(config, dict) else None
    found = said.get("Labels") if isinstance(said, dict) else None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def seed(layout: Path, earlier: Image) -> None:
    """Lay the whole layers of an earlier image where the next one will be exported to: those that stay are not copied.

    They are links: it takes no room, and the earlier image may go.
    """
    for layer in earlier.layers:
        held, target = blob(earlier.layout, layer.digest), blob(layout, layer.digest)
        try:
            if sha256_file(held) == layer.digest:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(held, target)
        except OSError:
            continue  # not there, or on another disk: BuildKit writes it


def sweep(image: Image) -> None:
    """Remove what lies in the layout of an image and is not of it."""
    named = {image.manifest, image.config, *(layer.digest for layer in image.layers)}
    for path in (image.layout / "blobs" / "sha256").iterdir():
        if f"sha256:{path.name}" not in named:
            path.unlink()


def begin(layout: Path) -> None:
    """Begin a new layout: `add` what it holds, then `finish` it."""
    (layout / "blobs" / "sha256").mkdir(parents=True)
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def add(layout: Path, content: bytes, media_type: str) -> dict[str, Any]:
    """Add a blob; its descriptor."""
    digest = sha256(content)
    blob(layout, digest).write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def finish(layout: Path, descriptors: Sequence[dict[str, Any]]) -> None:
    index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": list(descriptors)}
    (layout / "index.json").write_text(json.dumps(index))


def files(image: Image, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes | str]]:
    """The files of an image that are wanted by their path: each with its content, or with its target if it is a link.

    Of a path that several layers have, all are given, the last one last. Raises BadInputError.
    """
    for name, size, content in members(image, wanted):
        if isinstance(content, str):
            yield name, content
        elif size <= SMALL:
            yield name, content.read()


def members(image: Image, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, IO[bytes] | str]]:
    """As `files`, of any size: each with its size, to be read before the next one. Raises BadInputError."""
    try:
        for layer in image.layers:
            with _tar(image.layout, layer) as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if not wanted(name):
                        continue
                    if member.issym():
                        yield name, 0, member.linkname
                    elif member.isfile() and (content := archive.extractfile(member)):
                        yield name, member.size, content
    except (OSError, EOFError, tarfile.TarError, zstandard.ZstdError, zlib.error) as error:
        raise errors.BadInputError(
            f"a layer of {image.layout} cannot be read: {error}", next_step="build again"
        ) from error


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
