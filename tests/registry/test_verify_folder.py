"""Judging an image in a folder, without a network; and arguments that name no image, folder or key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from builder.image import oci
from builder.publish import registry
from builder.publish.reference import Repository
from tests.commands import vetted
from tests.conftest import ROOT, TINY
from tests.registry.conftest import Keys, Stack, rewritten, verify
from tests.unit.conftest import Command


@pytest.fixture
def carried(published: Stack, repository: Repository, tmp_path: Path) -> Path:
    """What `oras cp --recursive` makes of a published image."""
    registry.save(repository, published.image, tmp_path / "carried")
    return tmp_path / "carried"


def test_a_folder_verifies_with_the_network_off(published: Stack, carried: Path, keys: Keys) -> None:
    argv = ["verify", str(carried), "--offline", "--key", str(keys.public)]
    off = ["unshare", "--net"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*off, sys.executable, "-m", "builder", *argv], cwd=published.root, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "verified"
    assert vetted(published.root, *argv[:1], f"{carried}@{published.image}", *argv[2:]).code == 0


def test_every_damaged_blob_of_a_folder_is_noticed(
    command: Command, published: Stack, carried: Path, keys: Keys
) -> None:
    blobs = sorted((carried / "blobs" / "sha256").iterdir())
    assert len(blobs) == 9  # manifest, config, layer; their manifest, its empty config, four statements
    for path in blobs:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        spoiled = verify(command, published, str(carried), keys, "--offline")
        path.unlink()
        missing = verify(command, published, str(carried), keys, "--offline")
        if good != b"{}":  # which nobody reads
            assert spoiled.code in (1, 3), path
            assert missing.code in (1, 3), path
        path.write_bytes(good)
    assert verify(command, published, str(carried), keys, "--offline").code == 0


def test_a_damaged_layer_is_named(command: Command, published: Stack, carried: Path, keys: Keys) -> None:
    (layer,) = published.built.image.layers
    oci.blob(carried, layer.digest).write_bytes(b"other")
    answer = verify(command, published, str(carried), keys, "--offline")
    assert answer.code == 1
    assert f"doubt: the image is damaged: {layer.digest} has other content" in answer.out


def test_a_folder_without_attestations_is_in_doubt(command: Command, built: Stack, keys: Keys) -> None:
    answer = verify(command, built, str(built.built.image.layout), keys, "--offline")
    assert answer.code == 1
    assert "doubt: nothing is attached to it" in answer.out


def test_a_path_in_a_layout_leads_nowhere_else(command: Command, published: Stack, carried: Path, keys: Keys) -> None:
    rewritten(carried / "index.json", lambda index: index["manifests"][0].update(digest="sha256:../../../etc/passwd"))
    answer = verify(command, published, str(carried), keys, "--offline")
    assert answer.code == 3
    assert "is not an OCI layout" in answer.err


def test_what_is_no_layout_ends_with_3(command: Command, certified: Stack, keys: Keys, tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        answer = verify(command, certified, str(folder), keys, "--offline")
        assert answer.code == 3
        assert "is not an OCI layout" in answer.err


@pytest.mark.parametrize("reference", ["images", "a.b/c", "a.b/c:", "a.b/c@sha256:1", "a.b/c:-x", "a b.c/d:e", "--x"])
def test_what_is_no_reference_ends_with_2(command: Command, certified: Stack, keys: Keys, reference: str) -> None:
    answer = command(certified.root, "verify", f"--key={keys.public}", "--", reference)
    assert answer.code == 2
    assert "REF" in answer.err


def test_a_folder_without_offline_is_told(command: Command, certified: Stack, keys: Keys) -> None:
    answer = verify(command, certified, "docs", keys)
    assert answer.code == 2
    assert "add --offline" in answer.err


def test_what_is_no_public_key_ends_with_3(
    command: Command, certified: Stack, keys: Keys, repository: Repository
) -> None:
    reference = f"{repository}:{TINY}"
    for key, message in (
        ("nowhere.pub", "there is no public key nowhere.pub"),
        ("docs", "there is no public key docs"),
        ("README.md", "README.md is not a public key"),
        (str(keys.private), "is a private key: it signs, and must stay where it signs"),
    ):
        answer = command(certified.root, "verify", reference, "--key", key)
        assert answer.code == 3
        assert message in answer.err


def test_a_key_that_was_cut_short_ends_with_3(
    command: Command, published: Stack, keys: Keys, repository: Repository
) -> None:
    half = published.root / "half.pub"
    half.write_text("\n".join(keys.public.read_text().splitlines()[:2]))
    answer = command(published.root, "verify", f"{repository}:{TINY}", "--key", "half.pub")
    assert answer.code == 3
    assert "half.pub cannot be read as a public key" in answer.err
