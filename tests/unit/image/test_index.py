"""An index of the images for several platforms."""

from __future__ import annotations

from pathlib import Path

from builder.image import index, oci
from tests.unit.image.test_oci import FILES, File, Layout


def test_an_index_names_each_image_by_its_platform_and_has_all_blobs(tmp_path: Path) -> None:
    shared = (File("opt/venv/pure.py"),)
    layouts = [
        Layout(tmp_path / name, [FILES, shared] if name == "amd64" else [shared, FILES[:1]], architecture=name)
        for name in ("amd64", "arm64")
    ]
    images = [oci.read(layout.root) for layout in layouts]
    target = tmp_path / "index"
    digest = index.make(images, target)
    (descriptor,) = oci.descriptors(target)
    assert descriptor == {
        "mediaType": index.INDEX, "digest": digest, "size": oci.blob(target, digest).stat().st_size,
    }  # fmt: skip
    document = oci.json_of(target, digest)
    assert document["mediaType"] == index.INDEX
    assert [row["platform"] for row in document["manifests"]] == [
        {"architecture": "amd64", "os": "linux"}, {"architecture": "arm64", "os": "linux"},
    ]  # fmt: skip
    assert [row["digest"] for row in document["manifests"]] == [image.manifest for image in images]
    blobs = {f"sha256:{path.name}" for path in (target / "blobs" / "sha256").iterdir()}
    assert blobs == {digest, *images[0].digests, *images[1].digests}
    assert len(set(images[0].digests) & set(images[1].digests)) == 1


def test_the_digest_of_an_index_is_that_of_its_images(tmp_path: Path) -> None:
    image = oci.read(Layout(tmp_path / "a").root)
    other = oci.read(Layout(tmp_path / "b", architecture="arm64").root)
    digests = [index.make([image, other], tmp_path / name) for name in ("one", "two")]
    assert digests[0] == digests[1] != index.make([image], tmp_path / "three")
