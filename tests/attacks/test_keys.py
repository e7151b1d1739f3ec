"""Keys that were stolen or replaced, and signatures in the way of the image's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from builder.base.project import sha256
from builder.publish import registry, signature
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry import conftest as at
from tests.registry.conftest import Keys, Stack
from tests.registry.conftest import built as built
from tests.registry.conftest import certified as certified
from tests.registry.conftest import isolated as isolated
from tests.registry.conftest import keys as keys
from tests.registry.conftest import other_keys as other_keys
from tests.registry.conftest import published as published
from tests.registry.conftest import repository as repository
from tests.registry.conftest import shared_host as shared_host
from tests.registry.conftest import tools as tools
from tests.unit.conftest import Command
from tests.unit.conftest import command as command

pytestmark = pytest.mark.engine


def test_a_revoked_key_signs(
    command: Command, published: Stack, repository: Repository, keys: Keys, monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """`verify`, `use` and `publish` refuse a revoked key before they contact anything."""
    der = subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", keys.public, "-outform", "DER"], check=True, capture_output=True
    ).stdout
    line = f"# lost in March\n{sha256(der).removeprefix('sha256:')}  # the old one\n"
    project = published.root / "keys" / "revoked.txt"
    project.parent.mkdir()
    for path in (project, tmp_path / "elsewhere.txt"):
        path.write_text(line)
        for answer in (
            at.verify(command, published, f"{repository}:{TINY}", keys),
            at.verify(command, published, "127.0.0.1:1/nothing:tag", keys),
            command(published.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public)),
            at.publish(command, published, repository, keys),
        ):
            assert answer.code == 3
            assert "is revoked: sha256 " in answer.err
        path.unlink()
        monkeypatch.setenv("VETTED_REVOKED_KEYS", str(tmp_path / "elsewhere.txt"))
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 3  # named, and not there
    monkeypatch.delenv("VETTED_REVOKED_KEYS")
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 0
    project.write_text("deadbeef\n")
    assert "not the sha256 of a key" in at.verify(command, published, f"{repository}:{TINY}", keys).err


def test_a_key_is_rotated(
    command: Command, published: Stack, repository: Repository, keys: Keys, other_keys: Keys
) -> None:
    """Any named key may have signed; no other key may."""
    both = ["--key", str(other_keys.public)]
    reference = f"{repository}:{TINY}"
    assert at.verify(command, published, reference, keys, *both).code == 0
    assert at.verify(command, published, reference, other_keys, "--key", str(keys.public)).code == 0
    assert at.verify(command, published, reference, other_keys).code == 1
    new = published.another("new")
    assert at.publish(command, new, repository, other_keys).code == 0
    assert at.verify(command, new, reference, keys, *both).code == 0
    used = command(new.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public), *both)
    assert used.code == 0
    assert at.verify(command, new, reference, keys).code == 1


def cosign_verifies(repository: Repository, image: str, keys: Keys) -> bool:
    """What everybody types who has only cosign."""
    argv = ["cosign", "verify", "--key", str(keys.public), "--insecure-ignore-tlog", f"{repository}@{image}"]
    return subprocess.run(argv, check=False, capture_output=True).returncode == 0


def test_cosign_verify_knows_the_image(
    command: Command, published: Stack, repository: Repository, keys: Keys, other_keys: Keys
) -> None:
    """The published image is signed with the key, once, and with no other; another image is not."""
    assert cosign_verifies(repository, published.image, keys)
    assert not cosign_verifies(repository, published.image, other_keys)
    before = registry.resolve(repository, signature.tag(published.image))
    assert at.publish(command, published, repository, keys).code == 0
    assert registry.resolve(repository, signature.tag(published.image)) == before
    other = Stack(published.small, at.make_image(published.small, "other"))
    at.skopeo(f"oci:{other.built.image.layout}", f"docker://{repository}:other")
    assert not cosign_verifies(repository, other.image, keys)
    copied = registry.resolve(repository, signature.tag(published.image))
    registry.tag(repository, str(copied), signature.tag(other.image))
    assert not cosign_verifies(repository, other.image, keys)


def test_something_else_stands_where_the_signature_belongs(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    """`publish` also signs if an attacker put an image there, or an index that cosign cannot extend."""
    where = signature.tag(published.image)
    (tmp_path / "index").write_text(
        json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []})
    )
    argv = ["oras", "manifest", "push", "--plain-http", f"{repository}:{where}", str(tmp_path / "index")]
    subprocess.run(argv, check=True, capture_output=True)
    assert not cosign_verifies(repository, published.image, keys)
    assert at.publish(command, published, repository, keys).code == 0
    assert cosign_verifies(repository, published.image, keys)
    registry.tag(repository, published.image, where)
    assert not cosign_verifies(repository, published.image, keys)
    assert at.publish(command, published, repository, keys).code == 0
    assert cosign_verifies(repository, published.image, keys)
