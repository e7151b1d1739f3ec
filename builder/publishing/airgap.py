"""An image for hosts without a network: the image, what was signed of it and the public key, in one folder.

`image/` is an OCI layout, with everything attached as in a registry; beside it lie the same statements to be read, and
their envelopes for cosign. It appears under its name only when it verifies, offline, with the very key it carries.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder import errors
from builder.build import Built
from builder.lock import Lock
from builder.project import Project
from builder.publishing import attached, publish, signing, verify

IMAGE, KEY = "image", "cosign.pub"
NAMES = {"certificate": "certificate", "bill of materials": "sbom", "provenance": "provenance"}  # of the files


@dataclass(frozen=True)
class Carried:
    folder: Path
    image: str
    size: int


def make(
    project: Project, held: Lock, built: Built, key: str, output: Path, scratch: Path, report: Callable[[str], None]
) -> Carried:
    """Write the folder. Raises VettedError when there is no valid certificate, StorageError when something is there."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise errors.StorageError(f"{output} exists and is not an empty folder", next_step="choose another --output")
    image = built.image.manifest
    certificates = publish.valid(project, held, image)
    public = signing.public(key, scratch)
    report("making and signing what is attached")
    envelopes = [
        signing.sign(statement, key, scratch)
        for statement in publish.statements(project, held, built, certificates, ours=())
    ]
    partial = output.absolute().with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    report(f"copying the image, {built.image.size / 1e6:.0f} MB")
    shutil.copytree(built.image.layout, partial / IMAGE)
    attached.add(partial / IMAGE, built.image, envelopes)
    shutil.copyfile(public, partial / KEY)
    for number, envelope in enumerate(envelopes):
        kind = NAMES[attached.KINDS[envelope.predicate_type]]
        name = f"{kind}-{number + 1}" if kind == "certificate" and number else kind
        (partial / f"{name}.dsse.json").write_bytes(envelope.raw)
        # Of a bill of materials tools want the bill itself.
        said = envelope.statement["predicate"] if kind == "sbom" else envelope.statement
        (partial / f"{name}.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    report("verifying it, offline")
    verdict = verify.local(project, partial / IMAGE, None, partial / KEY, scratch, None)
    if not verdict.good:
        raise errors.VettedError(
            "\n".join([f"{output} would not verify; nothing was written", *verdict.doubts]),
            cause="a blob of the image was changed after it was built",
            next_step=f"vetted build {held.name}",
        )
    output.mkdir(parents=True, exist_ok=True)
    partial.rename(output)
    return Carried(output, image, sum(path.stat().st_size for path in output.rglob("*") if path.is_file()))
