"""What somebody tries who wants an image to be taken for what a lock, its provenance or its bill of materials says."""

from __future__ import annotations

from pathlib import Path

from builder import build, oci
from builder.lock import Lock
from builder.publishing import rebuild
from tests.conftest import Small
from tests.registry.conftest import image_of


def test_an_image_of_other_files_claims_the_stack_and_its_lock(small: Small, tmp_path: Path) -> None:
    """Who holds the key can sign it; rebuilt from the lock, it has another digest."""
    labels = build.own_labels(small.lock)
    evil = image_of(tmp_path / "evil", [{"etc/content": "evil"}], labels=labels)

    def honest(_: Lock, scratch: Path) -> oci.Image:
        return image_of(scratch / "layout", [{"etc/content": "content"}], labels=labels)

    found = rebuild.local(small.project, evil.layout, evil.manifest, honest)
    assert not found.identical
    assert "/etc/content differs in content" in found.doubts[0]


def test_the_layers_are_exchanged_below_a_genuine_manifest(small: Small, tmp_path: Path) -> None:
    """The rebuild has the digest of the manifest, and every blob is compared with the digest that names it."""
    labels = build.own_labels(small.lock)
    theirs = image_of(tmp_path / "theirs", [{"etc/content": "content"}], labels=labels)
    evil = image_of(tmp_path / "evil", [{"etc/content": "evil"}], labels=labels)
    blob = oci.blob(theirs.layout, theirs.layers[0].digest)
    blob.write_bytes(oci.blob(evil.layout, evil.layers[0].digest).read_bytes())

    def honest(_: Lock, scratch: Path) -> oci.Image:
        return image_of(scratch / "layout", [{"etc/content": "content"}], labels=labels)

    found = rebuild.local(small.project, theirs.layout, theirs.manifest, honest)
    assert not found.identical
    assert found.doubts == (f"the image is damaged: {theirs.layers[0].digest} has other content",)
