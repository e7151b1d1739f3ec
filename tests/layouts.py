"""OCI layouts of small images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from builder.base.project import sha256
from builder.image import oci
from builder.image.oci import Image

CONFIG = "application/vnd.oci.image.config.v1+json"
TAR = "application/vnd.oci.image.layer.v1.tar"


def write(
    layout: Path, archives: Sequence[bytes], config: Mapping[str, Any], *, name: str | None = None, zstd: bool = False
) -> Image:
    """An image of these layers. `config`: without them. `name`: its reference, as BuildKit adds it."""
    oci.begin(layout)
    kind = f"{TAR}+zstd" if zstd else TAR
    rootfs = {"type": "layers", "diff_ids": [sha256(archive) for archive in archives]}
    manifest = {
        "schemaVersion": 2,
        "mediaType": oci.MANIFEST,
        "config": oci.add(layout, json.dumps({**config, "rootfs": rootfs}).encode(), CONFIG),
        "layers": [oci.add(layout, zstandard.compress(archive) if zstd else archive, kind) for archive in archives],
    }
    descriptor = oci.add(layout, json.dumps(manifest).encode(), oci.MANIFEST)
    if name:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": f"docker.io/{name}"}
    oci.finish(layout, [descriptor])
    return oci.read(layout)
