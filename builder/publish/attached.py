"""What hangs on an image: signed statements, all in one manifest, so that they are there together or not at all.

Two ways lead to it. cosign follows a tag made of the image's digest; oras, and every registry of OCI 1.1, the
manifest's `subject`. Where a registry knows no referrers, oras keeps a tag for those as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from builder.base import errors, strictjson
from builder.certify import certificate
from builder.image import oci
from builder.image.oci import Image
from builder.publish import refusal, registry, signing
from builder.publish.reference import Repository
from builder.publish.signing import Envelope

BILL = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"
RELEASE = "urn:vetted:release:v1"
KINDS = {  # by predicate type
    certificate.PREDICATE: "certificate",
    BILL: "bill of materials",
    PROVENANCE: "provenance",
    RELEASE: "release",
}
ARTIFACT = "application/vnd.vetted.attestations.v1"
EMPTY = "application/vnd.oci.empty.v1+json"
# Whoever may push can attach anything: this much is looked at, the first ones first, and the rest is ignored.
MOST = 100  # statements on one image
LARGEST = 64 << 20  # bytes of one of them
BUDGET = 128 << 20  # bytes of all of them


class _Layer(BaseModel):
    digest: str = Field(pattern=f"^{oci.DIGEST.pattern}$")
    mediaType: str  # noqa: N815  (OCI's name)
    size: int = Field(ge=0)


class _Manifest(BaseModel):
    layers: list[_Layer]


def tag(image: str) -> str:
    """Where cosign looks for the attestations of an image."""
    return image.replace(":", "-") + ".att"


def write(image: Image, envelopes: Sequence[Envelope], layout: Path) -> str:
    """Write the manifest of these statements into a new OCI layout; its digest."""
    oci.begin(layout)
    descriptor = _write(image, envelopes, layout)
    oci.finish(layout, [descriptor])
    return str(descriptor["digest"])


def add(layout: Path, image: Image, envelopes: Sequence[Envelope]) -> None:
    """Add these statements to the layout that the image lies in."""
    oci.finish(layout, [*oci.descriptors(layout), _write(image, envelopes, layout)])


def _write(image: Image, envelopes: Sequence[Envelope], layout: Path) -> dict[str, Any]:
    layers = [
        # cosign wants the annotation of a signature, and looks for it in the envelope.
        {
            **oci.add(layout, one.raw, signing.MEDIA_TYPE),
            "annotations": {"dev.cosignproject.cosign/signature": "", "predicateType": one.predicate_type},
        }
        for one in envelopes
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "artifactType": ARTIFACT,
        "config": oci.add(layout, b"{}", EMPTY),
        "layers": layers,
        "subject": image.descriptor,
    }
    return {**oci.add(layout, json.dumps(manifest, indent=1).encode(), oci.MANIFEST), "artifactType": ARTIFACT}


def fetch(repository: Repository, image: str, ignored: list[str] | None = None) -> list[Envelope]:
    """The statements on an image in a registry; none of them is checked. `ignored` learns what was not looked at."""
    skipped = [] if ignored is None else ignored
    try:
        content = registry.manifest(repository, tag(image))
    except refusal.UnusableError as error:
        skipped.append(f"what is attached: {error.what.splitlines()[-1]}")
        return []
    found = []
    for one in _chosen([] if content is None else _layers(_json(content), skipped), skipped):
        try:
            found.append(signing.parse(registry.blob(repository, one.digest, one.size)))
        except refusal.UnusableError as error:
            skipped.append(f"a statement: {error.what.splitlines()[-1]}")
    return _read(found, skipped)


def read(layout: Path, image: str, ignored: list[str] | None = None) -> list[Envelope]:
    """The statements on an image in an OCI layout, that of `oras cp --recursive`; none of them is checked."""
    skipped = [] if ignored is None else ignored
    layers: list[_Layer] = []
    for digest in oci.manifests(layout)[:MOST]:
        manifest = oci.json_of(layout, digest)
        subject = manifest.get("subject") if isinstance(manifest, dict) else None
        if isinstance(subject, dict) and subject.get("digest") == image:
            layers += _layers(manifest, skipped)
    found = []
    for one in _chosen(layers, skipped):
        try:
            found.append(signing.parse(oci.checked(layout, one.digest)))
        except (OSError, ValueError) as error:
            raise errors.BadInputError(
                f"{layout}: an attestation of the image cannot be read: {error}",
                cause="the copy was cut short, or changed",
                next_step="copy it again",
            ) from error
    return _read(found, skipped)


def _json(content: bytes) -> Any:
    try:
        return strictjson.loads(content)
    except ValueError:
        return None


def _layers(manifest: Any, ignored: list[str]) -> list[_Layer]:
    try:
        read = _Manifest.model_validate(manifest)
    except ValidationError:
        ignored.append("what is attached: its manifest is not one of attestations")
        return []
    return [layer for layer in read.layers if layer.mediaType == signing.MEDIA_TYPE]


def _chosen(layers: Sequence[_Layer], ignored: list[str]) -> Iterator[_Layer]:
    """Those that are looked at."""
    unique = list({layer.digest: layer for layer in layers}.values())
    small = [layer for layer in unique if layer.size <= LARGEST]
    if len(small) < len(unique):
        ignored.append(f"{len(unique) - len(small)} statements: larger than {LARGEST >> 20} MB")
    left = BUDGET
    for number, layer in enumerate(small):
        left -= layer.size
        if number == MOST or left < 0:
            what = f"the first {MOST} are looked at" if number == MOST else f"{BUDGET >> 20} MB are looked at"
            ignored.append(f"{len(small) - number} of {len(small)} statements: {what}")
            return
        yield layer


def _read(found: Sequence[Envelope | None], ignored: list[str]) -> list[Envelope]:
    envelopes = [one for one in found if one]
    if len(envelopes) < len(found):
        ignored.append(f"{len(found) - len(envelopes)} envelopes: not DSSE, or readers would differ on what they say")
    return envelopes
