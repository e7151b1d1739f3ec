"""Attacks that pass an image off as the one that a lock, its provenance or its bill of materials describes."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from builder.image import build, oci, origin
from builder.image.origin import Origin
from builder.lock.lockfile import Lock
from builder.publish import libraries, nested, rebuild, sbom
from tests import parts
from tests.conftest import TINY, Small
from tests.registry.conftest import image_of, make_image


def test_an_image_of_other_files_claims_the_stack_and_its_lock(small: Small, tmp_path: Path) -> None:
    """Anyone with the key can sign it; a rebuild from the lock has another digest."""
    labels = build.own_labels(small.lock)
    evil = image_of(tmp_path / "evil", [{"etc/content": "evil"}], labels=labels)

    def honest(_: Lock, scratch: Path) -> oci.Image:
        return image_of(scratch / "layout", [{"etc/content": "content"}], labels=labels)

    result = rebuild.local(small.project, evil.layout, evil.manifest, honest)
    assert not result.identical
    assert "/etc/content differs in content" in result.doubts[0]


def test_the_layers_are_exchanged_below_a_genuine_manifest(small: Small, tmp_path: Path) -> None:
    """The manifest's digest matches the rebuild, and every blob is compared with its own digest."""
    labels = build.own_labels(small.lock)
    theirs = image_of(tmp_path / "theirs", [{"etc/content": "content"}], labels=labels)
    evil = image_of(tmp_path / "evil", [{"etc/content": "evil"}], labels=labels)
    blob = oci.blob(theirs.layout, theirs.layers[0].digest)
    blob.write_bytes(oci.blob(evil.layout, evil.layers[0].digest).read_bytes())

    def honest(_: Lock, scratch: Path) -> oci.Image:
        return image_of(scratch / "layout", [{"etc/content": "content"}], labels=labels)

    result = rebuild.local(small.project, theirs.layout, theirs.manifest, honest)
    assert not result.identical
    assert result.doubts == (f"the image is damaged: {theirs.layers[0].digest} has other content",)


def test_the_origin_of_a_kept_image_is_rewritten(small: Small) -> None:
    """The seal of the image's record covers the commit and the tools too."""
    built = make_image(small)
    came = Origin(commit="1" * 40)
    build.put_record(small.project, small.lock, dataclasses.replace(built, origin=came), small.scratch())
    kept = build.existing(small.project, small.lock)
    assert kept is not None and kept.origin == came
    record = small.project.state / "images" / f"{TINY}.json"
    genuine = record.read_text()
    for forged in (genuine.replace("1" * 40, "2" * 40), genuine.replace('"origin"', '"other"')):
        record.write_text(forged)
        assert build.existing(small.project, small.lock) is None


def test_a_repository_starts_a_program_when_its_commit_is_read(small: Small, tmp_path: Path) -> None:
    """The monitor and the hooks in a repository's configuration are not started."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in ("post-index-change", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path / 'started'}\n")
        (hooks / name).chmod(0o755)
    for argv in (["init", "--quiet"], ["config", "core.fsmonitor", f"touch {tmp_path / 'started'}; false"]):
        subprocess.run([parts.git(), *argv], cwd=small.root, check=True)
    options = ("user.name=x", "user.email=x@example.org", "core.fsmonitor=false")
    commit = [parts.git(), *(word for option in options for word in ("-c", option)), "commit"]
    subprocess.run([*commit, "--quiet", "--allow-empty", "--message=x"], cwd=small.root, check=True)
    subprocess.run([parts.git(), "config", "core.hooksPath", str(hooks)], cwd=small.root, check=True)
    assert origin.of(small.project, TINY).commit is not None
    assert not (tmp_path / "started").exists()


INFO = "tiny_lib-1.0.dist-info/sboms"


def described(small: Small, layout: Path, files: dict[str, str]) -> libraries.Vendored:
    site = f"opt/venv/{small.lock.site_packages}"
    image = image_of(layout, [{f"{site}/{name}": text for name, text in files.items()}])
    return libraries.read(image, small.lock.versions)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 200_000, "it is not JSON that all readers read alike"),
        ('{"bomFormat": "CycloneDX", "BomFormat": "x"}', "it is not JSON that all readers read alike"),
        (" " * (oci.SMALL + 1), "it is larger than 4 MB"),
        ('{"bomFormat": "another"}', "it is neither CycloneDX nor SPDX 2"),
        ("[]", "it is neither CycloneDX nor SPDX 2"),
    ],
)
def test_a_bill_in_a_wheel_is_hostile(small: Small, tmp_path: Path, text: str, why: str) -> None:
    """It is ignored, and the bill of the image says so."""
    vendored = described(small, tmp_path / "image", {f"{INFO}/x\x1b[2J.json": text})
    assert vendored.components == {"tiny-lib": []}
    (note,) = vendored.ignored["tiny-lib"]
    assert note.endswith(f".json: {why}") and note.isprintable()
    bill = sbom.of(small.lock, "sha256:" + "1" * 64, {}, {}, vendored)
    (tiny,) = [entry for entry in bill["components"] if entry["name"] == "tiny-lib"]
    assert {"name": "vetted:ignored", "value": note} in tiny["properties"]


def test_a_bill_in_a_wheel_names_more_than_anybody_reads(small: Small, tmp_path: Path) -> None:
    """The components of each bill and of all bills together are limited."""
    many = json.dumps({"bomFormat": "CycloneDX", "components": [{"name": f"x{n}"} for n in range(nested.MOST + 1)]})
    vendored = described(small, tmp_path / "image", {f"{INFO}/{n}.json": many for n in range(12)})
    assert len(vendored.components["tiny-lib"]) <= nested.MOST
    assert vendored.ignored["tiny-lib"][0] == f"sboms/0.json: all but the first {nested.MOST} components"
    assert vendored.ignored[""] == ["2 libraries or bills of materials: too many"]


def test_names_in_a_bill_are_commands_to_a_terminal(small: Small, tmp_path: Path) -> None:
    """Names are one printable line; invalid package URLs are left out."""
    evil = {"name": "\x1b]52;c;x\x07" + "n" * 10_000, "version": "\u202e1", "purl": "pkg:pypi/\x1b[2J"}
    text = json.dumps({"bomFormat": "CycloneDX", "components": [evil]})
    (part,) = described(small, tmp_path / "image", {f"{INFO}/x.json": text}).components["tiny-lib"]
    assert part.name.isprintable() and len(part.name) <= nested.LONGEST
    assert part.version is not None and part.version.isprintable() and part.purl is None
