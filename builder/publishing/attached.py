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

from builder import certificate, errors, oci
from builder.oci import Image
from builder.publishing import registry, signing
from builder.publishing.registry import Repository
from builder.publishing.signing import Envelope

BILL = "https://cyclonedx.org/bom"
PROVENANCE = "https://slsa.dev/provenance/v1"
KINDS = {certificate.PREDICATE: "certificate", BILL: "bill of materials", PROVENANCE: "provenance"}  # by predicate type
ARTIFACT = "application/vnd.vetted.attestations.v1"
EMPTY = "application/vnd.oci.empty.v1+json"
MOST = 100  # statements on one image; a registry that says more is not believed


class _Layer(BaseModel):
    digest: str = Field(pattern=oci.DIGEST.pattern)
    mediaType: str  # noqa: N815  (OCI's name)


class _Manifest(BaseModel):
    layers: list[_Layer] = Field(max_length=MOST)


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


def fetch(repository: Repository, image: str, scratch: Path) -> list[Envelope]:
    """The statements on an image in a registry; none of them is checked."""
    content = registry.manifest(repository, tag(image), scratch)
    if content is None:
        return []
    wanted = _layers(registry.document(repository, content))
    if wanted is None:
        raise registry.rubbish(repository, f"the manifest {tag(image)} is not one of attestations")
    found = (signing.parse(registry.blob(repository, digest, scratch)) for digest in wanted)
    return [one for one in found if one]


def read(layout: Path, image: str) -> list[Envelope]:
    """The statements on an image in an OCI layout, that of `oras cp --recursive`; none of them is checked."""
    found = []
    for digest in oci.manifests(layout):
        manifest = oci.json_of(layout, digest)
        subject = manifest.get("subject") if isinstance(manifest, dict) else None
        if not isinstance(subject, dict) or subject.get("digest") != image:
            continue
        for wanted in _layers(manifest) or ():
            try:
                content = oci.checked(layout, wanted)
            except (OSError, ValueError) as error:
                raise errors.BadInputError(
                    f"{layout}: an attestation of the image cannot be read: {error}",
                    cause="the copy was cut short, or changed",
                    next_step="copy it again",
                ) from error
            found.append(signing.parse(content))
    return [one for one in found if one]


def _layers(manifest: dict[str, Any]) -> Iterator[str] | None:
    try:
        read = _Manifest.model_validate(manifest)
    except ValidationError:
        return None
    return (layer.digest for layer in read.layers if layer.mediaType == signing.MEDIA_TYPE)
