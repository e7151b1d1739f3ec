"""OCI layouts: what is read of an image, and what a damaged layout is."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zstandard

from builder.base import errors
from builder.image import oci

ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
PLAIN = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class File:
    name: str
    content: bytes = b"content"
    mtime: int = 1_000_000_000
    mode: int = 0o644
    owner: int = 0
    link: str = ""
    headers: tuple[tuple[str, str], ...] = ()


FILES = (File("etc/a"), File("etc/b", b"other content"), File("etc/c", link="b"))


def tar(files: Sequence[File], kind: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for file in files:
            member = tarfile.TarInfo(file.name)
            member.mtime, member.mode, member.uid, member.gid = file.mtime, file.mode, file.owner, file.owner
            member.pax_headers = dict(file.headers)
            if file.link:
                member.type, member.linkname = tarfile.SYMTYPE, file.link
                archive.addfile(member)
            else:
                member.size = len(file.content)
                archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


COMPRESS: dict[str, Callable[[bytes, int], bytes]] = {
    ZSTD: lambda data, level: zstandard.ZstdCompressor(level=level).compress(data),
    GZIP: lambda data, level: gzip.compress(data, level, mtime=0),
    PLAIN: lambda data, _: data,
}


class Layout:
    """An OCI layout of one image."""

    def __init__(
        self,
        root: Path,
        layers: Sequence[Sequence[File]] = (FILES,),
        *,
        user: str = "1000",
        level: int = 3,
        media: str = ZSTD,
        annotation: str = "",
        kind: int = tarfile.PAX_FORMAT,
        labels: Mapping[str, str] | None = None,
        architecture: str = "amd64",
    ) -> None:
        self.root = root
        (root / "blobs" / "sha256").mkdir(parents=True)
        archives = [tar(files, kind) for files in layers]
        diff_ids = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in archives]
        self.layers = [self.blob(COMPRESS[media](data, level), media) for data in archives]
        config = {
            "architecture": architecture,
            "os": "linux",
            "config": {"User": user, "Labels": dict(labels or {})},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        self.config = self.blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")
        manifest: dict[str, Any] = {"schemaVersion": 2, "config": self.config, "layers": self.layers}
        if annotation:
            manifest["annotations"] = {"note": annotation}
        self.manifest = self.blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
        self.index([self.manifest])

    def blob(self, data: bytes, media: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        oci.blob(self.root, digest).write_bytes(data)
        return {"mediaType": media, "digest": digest, "size": len(data)}

    def index(self, manifests: object) -> None:
        (self.root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": manifests}))

    def path(self, descriptor: dict[str, Any]) -> Path:
        return oci.blob(self.root, descriptor["digest"])


def test_an_image_is_read_as_it_lies_there(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a", [FILES, FILES[:1]])
    image = oci.read(layout.root)
    assert image.manifest == layout.manifest["digest"]
    assert image.config == layout.config["digest"]
    assert [layer.digest for layer in image.layers] == [layer["digest"] for layer in layout.layers]
    assert image.layers[0].diff_id == f"sha256:{hashlib.sha256(tar(FILES)).hexdigest()}"
    assert image.size == sum(layer["size"] for layer in layout.layers)


def test_whole_layers_of_an_earlier_image_are_there_already_and_take_no_room(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a", [FILES, FILES[:1], FILES[:2]])
    image = oci.read(layout.root)
    whole, edited, gone = image.layers
    oci.blob(layout.root, edited.digest).write_bytes(b"x" * edited.size)
    oci.blob(layout.root, gone.digest).unlink()
    oci.seed(tmp_path / "b", image)
    (laid,) = (tmp_path / "b" / "blobs" / "sha256").iterdir()
    assert f"sha256:{laid.name}" == whole.digest
    assert laid.samefile(oci.blob(layout.root, whole.digest))


def test_what_is_not_of_the_image_is_swept_out(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "a")
    other = oci.blob(layout.root, "sha256:" + "0" * 64)
    other.write_bytes(b"a layer of an earlier image")
    image = oci.read(layout.root)
    oci.sweep(image)
    assert not other.exists()
    assert oci.read(layout.root) == image
    assert not list(oci.damaged(image))


DAMAGE: dict[str, Callable[[Layout], object]] = {
    "no index": lambda layout: (layout.root / "index.json").unlink(),
    "index cut short": lambda layout: (layout.root / "index.json").write_text('{"manifests": ['),
    "index of another kind": lambda layout: (layout.root / "index.json").write_text("[]"),
    "index not text": lambda layout: (layout.root / "index.json").write_bytes(b"\xff\xff"),
    "no image": lambda layout: layout.index([]),
    "two images": lambda layout: layout.index([layout.manifest, layout.manifest]),
    "no manifest": lambda layout: layout.path(layout.manifest).unlink(),
    "manifest edited": lambda layout: layout.path(layout.manifest).write_bytes(
        layout.path(layout.manifest).read_bytes() + b" "
    ),
    "no config": lambda layout: layout.path(layout.config).unlink(),
    "config edited": lambda layout: layout.path(layout.config).write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_layout_is_a_bad_input(tmp_path: Path, damage: str) -> None:
    layout = Layout(tmp_path / "a")
    DAMAGE[damage](layout)
    with pytest.raises(errors.BadInputError, match="is not an OCI layout of one image") as caught:
        oci.read(layout.root)
    assert str(layout.root) in caught.value.what
    assert caught.value.next_step == f"rm -r {layout.root}, then build again"


def test_a_folder_that_is_not_there_is_a_bad_input(tmp_path: Path) -> None:
    with pytest.raises(errors.BadInputError, match="is not an OCI layout"):
        oci.read(tmp_path / "nothing")
