"""The signed statements that are attached to an image, all in one manifest: they are there together or not at all.

cosign finds the manifest by a tag made of the image's digest; oras and registries of OCI 1.1 find it by its `subject`.
Where a registry knows no referrers, oras keeps a tag for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from builder.base import errors, quantities, strictjson
from builder.base.text import word
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
# Anyone who may push can attach anything: the first ones are read, up to these limits, and the rest is ignored.
MOST = 100  # statements on one image
LARGEST = 64 << 20  # bytes of one of them
BUDGET = 128 << 20  # bytes of all of them


class _Layer(BaseModel):
    """An OCI descriptor of a statement."""

    digest: str = Field(pattern=f"^{oci.DIGEST.pattern}$")
    mediaType: str  # noqa: N815  (OCI's name)
    size: int = Field(ge=0)


class _Manifest(BaseModel):
    """The manifest of the statements, as far as it is read."""

    layers: list[_Layer]


def tag(image: str) -> str:
    """Where cosign looks for the attestations of an image."""
    return image.replace(":", "-") + ".att"


def write(image: Image, envelopes: Sequence[Envelope], layout: Path) -> str:
    """Write the manifest of these statements into a new OCI layout; returns its digest."""
    oci.begin(layout)
    descriptor = _write(image, envelopes, layout)
    oci.finish(layout, [descriptor])
    return str(descriptor["digest"])


def add(layout: Path, image: Image, envelopes: Sequence[Envelope]) -> None:
    """Add these statements to the layout of the image."""
    oci.finish(layout, [*oci.descriptors(layout), _write(image, envelopes, layout)])


def _write(image: Image, envelopes: Sequence[Envelope], layout: Path) -> dict[str, Any]:
    layers = [
        # cosign requires the annotation of a signature, and then looks for the signature in the envelope.
        {
            **oci.add(layout, envelope.raw, signing.MEDIA_TYPE),
            "annotations": {"dev.cosignproject.cosign/signature": "", "predicateType": envelope.predicate_type},
        }
        for envelope in envelopes
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
    """The statements on an image in a registry, unchecked. What was not read is added to `ignored`, in words.

    Raises NetworkError.
    """
    skipped = [] if ignored is None else ignored
    try:
        content = registry.manifest(repository, tag(image))
    except refusal.UnusableError as error:
        skipped.append(f"what is attached: {error.what.splitlines()[-1]}")
        return []
    envelopes = []
    for layer in _chosen([] if content is None else _layers(_json(content), skipped), skipped):
        try:
            envelopes.append(signing.parse(registry.blob(repository, layer.digest, layer.size)))
        except refusal.UnusableError as error:
            skipped.append(f"a statement: {error.what.splitlines()[-1]}")
    return _parsed(envelopes, skipped)


def read(layout: Path, image: str, ignored: list[str] | None = None) -> list[Envelope]:
    """The statements on an image in an OCI layout of `oras cp --recursive`, unchecked. Raises BadInputError."""
    skipped = [] if ignored is None else ignored
    layers: list[_Layer] = []
    for digest in oci.manifests(layout)[:MOST]:
        manifest = oci.json_of(layout, digest)
        subject = manifest.get("subject") if isinstance(manifest, dict) else None
        if isinstance(subject, dict) and subject.get("digest") == image:
            layers += _layers(manifest, skipped)
    envelopes = []
    for layer in _chosen(layers, skipped):
        try:
            envelopes.append(signing.parse(oci.checked(layout, layer.digest)))
        except (OSError, ValueError) as error:
            raise errors.BadInputError(
                f"{layout}: an attestation of the image cannot be read: {error}",
                cause="the copy was cut short, or changed",
                next_step="copy it again",
            ) from error
    return _parsed(envelopes, skipped)


def subject(layout: Path, image: str | None = None) -> str:
    """The digest of an image in an OCI layout: `image`, or the only one there that is attached to no other.

    Raises BadInputError.
    """
    try:
        images = [digest for digest in oci.manifests(layout) if "subject" not in oci.json_of(layout, digest)]
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{layout} is not an OCI layout: {error}",
            cause="another folder was meant, or a copy was cut short",
            next_step=f"oras cp --recursive --to-oci-layout HOST/PATH@sha256:… {word(layout)}",
        ) from error
    if image is None and len(images) != 1:
        raise errors.BadInputError(
            f"{layout} holds {len(images)} images",
            next_step=f"name one: {word(layout)}@{word(images[0]) if images else 'sha256:…'}",
        )
    return image or images[0]


def _json(content: bytes) -> Any:
    try:
        return strictjson.loads(content)
    except ValueError:
        return None


def _layers(manifest: Any, ignored: list[str]) -> list[_Layer]:
    try:
        layers = _Manifest.model_validate(manifest).layers
    except ValidationError:
        ignored.append("what is attached: its manifest is not one of attestations")
        return []
    return [layer for layer in layers if layer.mediaType == signing.MEDIA_TYPE]


def _chosen(layers: Sequence[_Layer], ignored: list[str]) -> Iterator[_Layer]:
    """The layers that are read: the first ones, up to the limits."""
    unique = list({layer.digest: layer for layer in layers}.values())
    small = [layer for layer in unique if layer.size <= LARGEST]
    if len(small) < len(unique):
        ignored.append(f"{len(unique) - len(small)} statements: larger than {quantities.size(LARGEST)}")
    left = BUDGET
    for number, layer in enumerate(small):
        left -= layer.size
        if number == MOST or left < 0:
            what = f"the first {MOST} are looked at" if number == MOST else f"{quantities.size(BUDGET)} are looked at"
            ignored.append(f"{len(small) - number} of {len(small)} statements: {what}")
            return
        yield layer


def _parsed(envelopes: Sequence[Envelope | None], ignored: list[str]) -> list[Envelope]:
    parsed = [envelope for envelope in envelopes if envelope]
    if refused := len(envelopes) - len(parsed):
        ignored.append(f"{refused} envelopes: not DSSE, or readers would differ on what they say")
    return parsed
