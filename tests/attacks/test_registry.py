"""Who may push to a registry, and has no key: none of it is believed, and none of it stands in the way."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from builder import certificate, oci
from builder.publishing import attached, registry, signing
from builder.publishing.registry import Repository
from tests.attacks.envelopes import forgeries
from tests.conftest import TINY
from tests.registry import conftest as at
from tests.registry.conftest import Keys, Stack
from tests.registry.conftest import built as built
from tests.registry.conftest import certified as certified
from tests.registry.conftest import isolated as isolated
from tests.registry.conftest import keys as keys
from tests.registry.conftest import other_keys as other_keys
from tests.registry.conftest import repository as repository
from tests.registry.conftest import shared_host as shared_host
from tests.registry.conftest import tools as tools
from tests.unit.conftest import Command
from tests.unit.conftest import command as command

pytestmark = pytest.mark.engine

FORGERIES = ("forged, then Payload", "Payload, then forged", "forged, then payload", "forged, then payloa\\u0064")


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
    there = attached.fetch(repository, stack.image, folder)
    certificates = [one for one in there if one.predicate_type == certificate.PREDICATE]
    raws = [forged_certificate(one.raw, how) if one in certificates else one.raw for one in there]
    _attach(stack, repository, raws, folder)


@pytest.mark.parametrize("how", FORGERIES)
def test_a_certificate_is_forged_in_the_registry_and_in_a_folder(
    command: Command, certified: Stack, repository: Repository, keys: Keys, tmp_path: Path, how: str
) -> None:
    """`verify`, `use --key` and `verify --offline` refuse the forged certificate, and `publish` takes it away."""
    assert at.publish(command, certified, repository, keys).code == 0
    forge(certified, repository, tmp_path / "forged", how)
    for more in ((), ("--hardware", "H200")):
        answer = at.verify(command, certified, f"{repository}:{TINY}", keys, *more)
        assert answer.code == 1
        assert "doubt: no certificate is among what is attached" in answer.out
        assert "H200:" not in answer.out and "9999" not in answer.out
    used = command(certified.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public))
    assert used.code == 1
    assert not (certified.root / ".env").exists()
    registry.save(repository, certified.image, tmp_path / "carried")
    # The copy holds the genuine attestations beside the forged ones: those alone count.
    answer = at.verify(command, certified, str(tmp_path / "carried"), keys, "--offline", "--hardware", "H200")
    assert answer.code == 1
    assert "doubt: no certificate was earned on H200" in answer.out and "9999" not in answer.out
    assert at.publish(command, certified, repository, keys).code == 0
    assert at.verify(command, certified, f"{repository}:{TINY}", keys).code == 0
