"""An image for hosts without a network: the image, what was signed of it and the public key, in one folder.

`image/` is an OCI layout, with everything attached as in a registry; beside it lie the same statements to be read, and
their envelopes for cosign. What people run lies there too: `sh load` gives the image to Docker, and then
`docker compose run --rm train` works in that folder, without anything else of this project. The list of all files is
signed as well. The folder appears under its name only when it verifies, offline, with the very key it carries.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jinja2 import StrictUndefined, Template

from builder.base import errors, sources
from builder.base.project import Project
from builder.certify import judged
from builder.image.build import Built
from builder.lock.lockfile import Lock
from builder.publish import attached, dotenv, keys, publish, signing, verify
from builder.publish import folder as folders

IMAGE, KEY = "image", "cosign.pub"
NAMES = {"certificate": "certificate", "bill of materials": "sbom", "provenance": "provenance"}  # of the files
# What is there beside the image: the files that people run, and what they mount.
LOAD, JUDGED = "load", "judged"
SCRIPT = Path(__file__).parent / "scripts" / "load.sh"


@dataclass(frozen=True)
class CarriedImage:
    """A folder that was written; `size` in bytes."""

    folder: Path
    image: str
    size: int


def make(
    project: Project, lock: Lock, built: Built, key: str, output: Path, scratch: Path, report: Callable[[str], None]
) -> CarriedImage:
    """Write the folder. Raises VettedError when there is no valid certificate, StorageError when something is there."""
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise errors.StorageError(f"{output} exists and is not an empty folder", next_step="choose another --output")
    image = built.image.manifest
    certificates = publish.valid(project, lock, image)
    public = signing.public(key, scratch)
    keys.refuse_revoked(project, public)
    report("making and signing what is attached")
    envelopes = [
        signing.sign(statement, key, scratch)
        for statement in publish.statements(project, lock, built, certificates, ours=())
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
    environment = _compose(project, lock, built, partial)
    judged.record(project, lock, image, certificates, partial / JUDGED, scratch)
    folders.sign(partial, environment, key, scratch)
    report("verifying it, offline")
    verdict = verify.local(project, partial / IMAGE, None, [partial / KEY], scratch, None)
    doubts = [*verdict.doubts, *check(partial, partial / KEY, scratch)]
    if not verdict.good or doubts:
        raise errors.VettedError(
            "\n".join([f"{output} would not verify; nothing was written", *doubts]),
            cause="a blob of the image was changed after it was built",
            next_step=f"vetted build {lock.name}",
        )
    output.mkdir(parents=True, exist_ok=True)
    partial.rename(output)
    return CarriedImage(output, image, sum(path.stat().st_size for path in output.rglob("*") if path.is_file()))


def layout(folder: Path) -> tuple[Path, Path | None]:
    """The OCI layout that a person means by a folder, and the carried folder around it, when it is one."""
    if (folder / LOAD).exists() or (folder / folders.MANIFEST).exists():
        return folder / IMAGE, folder
    around = folder.parent if folder.name == IMAGE and (folder.parent / folders.MANIFEST).exists() else None
    return folder, around


def check(folder: Path, key: Path, scratch: Path) -> list[str]:
    """What of such a folder is not as it was signed: a file that was changed, is missing or was added."""
    return folders.check(folder, key, scratch)


def _compose(project: Project, lock: Lock, built: Built, folder: Path) -> dict[str, str]:
    """What `docker compose` needs in the folder, and the script that chooses the image; returns what that writes, each
    variable with the pattern of its value."""
    for source in sorted(project.root.glob("compose*.yaml")):
        shutil.copyfile(source, folder / source.name)
    sources.copy(project.smoke, folder)
    image, files = f"{built.reference.partition(':')[0]}@{built.image.manifest}", dotenv.files("", lock.stack.device)
    (folder / LOAD).write_text(script(image, lock.name, files), encoding="utf-8")
    (folder / LOAD).chmod(0o755)
    fixed = {dotenv.IMAGE: image, dotenv.STACK: lock.name, dotenv.CERTIFICATES: f"./{JUDGED}"}
    return {
        **{name: re.escape(value) for name, value in fixed.items()},
        dotenv.USER: "[1-9][0-9]*:[0-9]+",
        dotenv.FILES: re.escape(files),
        dotenv.MEMORY: "[1-9][0-9]*m",
    }


def script(image: str, stack: str, files: str) -> str:
    """The script that gives Docker the image and writes .env. `files`: the compose files."""
    template = Template(SCRIPT.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True)
    rendered: str = template.render(
        image=image, stack=stack, files=files, judged=JUDGED, nobody=dotenv.NOBODY_IN_PARTICULAR, spared=dotenv.SPARED
    )
    return rendered
