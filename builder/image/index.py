"""One image for several platforms: an OCI index, by which a machine pulls the image that is for it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.base import strictjson
from builder.image import oci
from builder.image.oci import Image

INDEX = "application/vnd.oci.image.index.v1+json"


def make(images: Sequence[Image], layout: Path) -> str:
    """Write a layout of one index of these images, and return its digest. Layers that they share are there once."""
    oci.begin(layout)
    for image in images:
        for digest in image.digests:
            _link(oci.blob(image.layout, digest), oci.blob(layout, digest))
    manifests = [{**image.descriptor, "platform": _platform(image)} for image in images]
    document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}
    descriptor = oci.add(layout, json.dumps(document, separators=(",", ":")).encode(), INDEX)
    oci.finish(layout, [descriptor])
    return str(descriptor["digest"])


def listed(manifest: bytes) -> dict[str, str]:
    """Docker's name of each platform -> the digest of its image, in what may be an index; empty when it is none."""
    try:
        document = strictjson.load_object(manifest)
        if document.get("mediaType") != INDEX:
            return {}
        rows = [(row["platform"], row["digest"]) for row in document["manifests"]]
        return {f"{platform['os']}/{platform['architecture']}": digest for platform, digest in rows if _is(digest)}
    except (ValueError, KeyError, TypeError):
        return {}


def _is(digest: object) -> bool:
    return isinstance(digest, str) and oci.DIGEST.fullmatch(digest) is not None


def _platform(image: Image) -> dict[str, Any]:
    config = oci.json_of(image.layout, image.config)
    return {key: config[key] for key in ("architecture", "os", "variant") if key in config}


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # on another disk
        shutil.copyfile(source, target)
