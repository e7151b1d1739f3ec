"""What somebody tries who wants an image to be taken for what a lock, its provenance or its bill of materials says."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

from builder import build, oci, origin
from builder.lock import Lock
from builder.origin import Origin
from builder.publishing import rebuild
from tests.conftest import TINY, Small
from tests.registry.conftest import image_of, make_image


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


def test_the_origin_of_a_kept_image_is_rewritten(small: Small) -> None:
    """The seal of the image's record covers the commit and the tools too."""
    built = make_image(small)
    came = Origin(commit="1" * 40)
    build.put_record(small.project, small.lock, dataclasses.replace(built, origin=came), small.scratch())
    found = build.existing(small.project, small.lock)
    assert found is not None and found.origin == came
    record = small.project.state / "images" / f"{TINY}.json"
    genuine = record.read_text()
    for forged in (genuine.replace("1" * 40, "2" * 40), genuine.replace('"origin"', '"other"')):
        record.write_text(forged)
        assert build.existing(small.project, small.lock) is None


def test_a_repository_starts_a_program_when_its_commit_is_read(small: Small, tmp_path: Path) -> None:
    """git starts what a repository's own configuration names as its monitor."""
    for argv in (["init", "--quiet"], ["config", "core.fsmonitor", f"touch {tmp_path / 'started'}; false"]):
        subprocess.run(["git", *argv], cwd=small.root, check=True)
    commit = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "core.fsmonitor=false", "commit"]
    subprocess.run([*commit, "--quiet", "--allow-empty", "--message=x"], cwd=small.root, check=True)
    assert origin.of(small.project).commit is not None
    assert not (tmp_path / "started").exists()
