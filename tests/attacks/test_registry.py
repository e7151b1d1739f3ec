"""Attackers who may push to a registry, and have no key: nothing is believed, and nothing blocks the genuine."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path

import pytest

from builder.base import errors
from builder.certify import certificate
from builder.image import oci
from builder.publish import attached, registry, signing
from builder.publish.reference import Repository, parse_repository
from tests.attacks.envelopes import encoded, forgeries, genuine, write
from tests.conftest import TINY
from tests.registry import conftest as at
from tests.registry import test_refusals as at_refusals
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

FORGERIES = ("forged, then Payload", "Payload, then forged", "forged, then payload", "forged, then payloa\\u0064")


def raws_of(repository: Repository, image: str) -> list[bytes]:
    """The envelopes on an image, as they are in the registry."""
    return [envelope.raw for envelope in attached.fetch(repository, image)]


def _attach(stack: Stack, repository: Repository, raws: list[bytes], folder: Path) -> None:
    """Put these very bytes on the image, in place of what is there."""
    layout = folder / "attached"
    oci.begin(layout)
    note = {"annotations": {"dev.cosignproject.cosign/signature": ""}}
    manifest = {
        "schemaVersion": 2, "mediaType": oci.MANIFEST, "artifactType": attached.ARTIFACT,
        "config": oci.add(layout, b"{}", attached.EMPTY),
        "layers": [{**oci.add(layout, raw, signing.MEDIA_TYPE), **note} for raw in raws],
        "subject": stack.built.image.descriptor,
    }  # fmt: skip
    descriptor = oci.add(layout, json.dumps(manifest).encode(), oci.MANIFEST)
    oci.finish(layout, [descriptor])
    registry.push(repository, layout, descriptor["digest"], attached.tag(stack.image))


def forged_certificate(raw: bytes, how: str) -> bytes:
    """An envelope whose certificate says that it was earned on eight H200 and never expires, made without the key."""
    envelope = json.loads(raw)
    payload = base64.b64decode(envelope["payload"])
    statement = json.loads(payload)
    statement["predicate"]["expires"] = "9999-12-31"
    for resource in statement["predicate"]["configuration"]:
        if resource["name"] == "hardware":
            resource["annotations"] = {"class": "8x NVIDIA H200"}
    return forgeries(payload, json.dumps(statement).encode(), envelope["signatures"][0]["sig"])[how]


def forge(stack: Stack, repository: Repository, folder: Path, how: str) -> None:
    """Put a forged certificate in the place of the genuine one."""
    folder.mkdir()
    there = attached.fetch(repository, stack.image)
    certificates = [envelope for envelope in there if envelope.predicate_type == certificate.PREDICATE]
    raws = [forged_certificate(envelope.raw, how) if envelope in certificates else envelope.raw for envelope in there]
    _attach(stack, repository, raws, folder)


@pytest.mark.parametrize("how", FORGERIES)
def test_a_certificate_is_forged_in_the_registry_and_in_a_folder(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path, how: str
) -> None:
    """`verify`, `use --key` and `verify --offline` refuse the forged certificate, and `publish` takes it away."""
    forge(published, repository, tmp_path / "forged", how)
    for more in ((), ("--hardware", "H200")):
        answer = at.verify(command, published, f"{repository}:{TINY}", keys, *more)
        assert answer.code == 1
        assert "doubt: no certificate is among what is attached" in answer.out
        assert "H200:" not in answer.out and "9999" not in answer.out
    used = command(published.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public))
    assert used.code == 1
    assert not (published.root / ".env").exists()
    registry.save(repository, published.image, tmp_path / "carried")
    # The copy holds the genuine attestations beside the forged ones: those alone count.
    answer = at.verify(command, published, str(tmp_path / "carried"), keys, "--offline", "--hardware", "H200")
    assert answer.code == 1
    assert "doubt: no certificate was earned on H200" in answer.out and "9999" not in answer.out
    assert at.publish(command, published, repository, keys).code == 0
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 0


# --- in the way ----------------------------------------------------------------------------------------------------


def junk(number: int) -> bytes:
    """An envelope that looks like a certificate, and that no key signed."""
    payload = json.dumps({"predicateType": certificate.PREDICATE, "number": number}).encode()
    return write(genuine(payload, encoded(b"junk"))).encode()


def test_a_hundred_and_one_statements_stand_before_the_genuine_ones(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    """`verify` reads a hundred and says how many it ignored; `publish` puts its own first again."""
    raws = raws_of(repository, published.image)
    _attach(published, repository, [*map(junk, range(101)), *raws], tmp_path / "junk")
    answer = at.verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert f"ignored {1 + len(raws)} of {101 + len(raws)} statements: the first 100 are looked at" in answer.out
    assert at.publish(command, published, repository, keys).code == 0
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 0


def test_what_is_attached_is_replaced_by_something_else(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    """`publish` is not stopped by a tag of attestations that names an ordinary image."""
    registry.tag(repository, published.image, attached.tag(published.image))
    answer = at.verify(command, published, f"{repository}:{TINY}", keys)
    assert (answer.code, "doubt: nothing is attached to it" in answer.out) == (1, True)
    assert at.publish(command, published, repository, keys).code == 0
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 0


def test_a_statement_is_larger_than_its_descriptor_says(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    """A blob is read only up to its declared size; it blocks neither `verify` nor `publish`."""
    raws = raws_of(repository, published.image)
    _attach(published, repository, [*raws, junk(1) + b" " * 100_000], tmp_path / "large")
    manifest = json.loads(registry.manifest(repository, attached.tag(published.image)) or b"")
    manifest["layers"][-1]["size"] = 1000
    (tmp_path / "lying").write_text(json.dumps(manifest))
    argv = ["oras", "manifest", "push", "--plain-http", f"{repository}:{attached.tag(published.image)}"]
    subprocess.run([*argv, str(tmp_path / "lying")], check=True, capture_output=True)
    ignored: list[str] = []
    assert [envelope.raw for envelope in attached.fetch(repository, published.image, ignored)] == raws
    assert len(ignored) == 1 and "it sends more than 1000 bytes" in ignored[0]
    assert at.verify(command, published, f"{repository}:{TINY}", keys).code == 0
    assert at.publish(command, published, repository, keys).code == 0


def test_a_blob_fills_the_disk_before_anybody_looks_at_its_size(certified: Stack, tmp_path: Path) -> None:
    """The registry's answer goes through a pipe, and no file gets larger than requested."""
    with at_refusals.answering(200, "application/octet-stream", "0" * 8_000_000) as host:
        where = parse_repository(f"{host}/images", insecure=False)
        with pytest.raises(errors.NetworkError, match="it sends more than 1000 bytes"):
            registry.blob(where, certified.image, 1000)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1_000_000


# --- back ----------------------------------------------------------------------------------------------------------


def test_a_tag_goes_back_to_an_older_image(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    """An older image of the same lock, with a valid certificate, is refused after a newer one was seen."""
    new = published.another("new")
    assert at.publish(command, new, repository, keys).code == 0
    assert at.verify(command, new, f"{repository}:{TINY}", keys).code == 0
    registry.tag(repository, published.image, TINY)
    answer = at.verify(command, new, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert f"doubt: the tag went back to an older release\n         seen here {new.image} of " in answer.out
    assert "add --allow-rollback" in answer.out
    argv = ["use", TINY, "--registry", str(repository), "--key", str(keys.public)]
    used = command(new.root, *argv)
    assert (used.code, "the tag went back" in used.err) == (1, True)
    assert not (new.root / ".env").exists()
    assert at.verify(command, new, f"{repository}@{published.image}", keys).code == 0
    assert command(new.root, *argv, "--allow-rollback").code == 0
    assert at.verify(command, new, f"{repository}:{TINY}", keys).code == 0


def test_what_is_attached_goes_back(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    """Statements of an earlier release of the same image are refused after later ones were seen."""
    raws = raws_of(repository, published.image)
    new = published.another("new")
    assert at.publish(command, new, repository, keys).code == 0
    back = Stack(published.small, at.make_image(published.small))
    back.small.issue("docker", subject=back.image)
    assert back.image == published.image
    assert at.publish(command, back, repository, keys).code == 0
    assert at.verify(command, back, f"{repository}:{TINY}", keys).code == 0
    _attach(back, repository, raws, tmp_path / "old")
    answer = at.verify(command, back, f"{repository}:{TINY}", keys)
    assert (answer.code, "doubt: the tag went back" in answer.out) == (1, True)


def test_an_image_is_given_another_tag(command: Command, published: Stack, repository: Repository, keys: Keys) -> None:
    """The signed release names the tags; another one is in doubt."""
    registry.tag(repository, published.image, "stable")
    answer = at.verify(command, published, f"{repository}:stable", keys)
    assert answer.code == 1
    assert f"published under other tags\n         expected stable\n         got      {TINY}, {at.dated()}" in answer.out
    assert at.verify(command, published, f"{repository}:{at.dated()}", keys).code == 0


def test_the_release_is_taken_away(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    """Without a signed release, a tag is in doubt but a digest is not."""
    there = attached.fetch(repository, published.image)
    raws = [envelope.raw for envelope in there if envelope.predicate_type != attached.RELEASE]
    assert len(raws) == len(there) - 1
    _attach(published, repository, raws, tmp_path / "without")
    answer = at.verify(command, published, f"{repository}:{TINY}", keys)
    assert (answer.code, "doubt: no signed release says under which tags" in answer.out) == (1, True)
    assert at.verify(command, published, f"{repository}@{published.image}", keys).code == 0
