"""An image for hosts without a network: the image, its signed statements and the public key, in one folder.

`image/` is an OCI layout with the statements attached, as in a registry; beside it are the same statements as readable
JSON, and their envelopes for cosign. `sh load` gives the image to Docker; then `docker compose run --rm train` works in
that folder, without anything else of this project. The list of all files is signed too. The folder gets its name only
when it verifies, offline, with the key that it carries.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import StrictUndefined, Template

from builder.base import errors, output_folder, quantities, sources
from builder.base.project import Project
from builder.base.text import word
from builder.certify import verdict as verdicts
from builder.image.build import Built
from builder.lock.lockfile import Lock
from builder.publish import attached, dotenv, keys, publish, signing, verify
from builder.publish import folder as folders
from builder.publish.publish import Progress
from builder.publish.verify import Verdict

IMAGE, KEY = "image", "cosign.pub"
NAMES = {"certificate": "certificate", "bill of materials": "sbom", "provenance": "provenance"}  # of files
# Beside the image: the script that people run, and what the container mounts.
LOAD, JUDGED = "load", "judged"
CACHE = folders.CACHE
# What shows that a folder was carried, though its list is gone; and what Compose would read there.
TRACES = (LOAD, JUDGED, folders.MANIFEST)
READ_BY_COMPOSE = ("compose*.y*ml", "docker-compose*.y*ml")
ALONE = "an OCI layout alone: only the image was judged, and no file beside it"
SCRIPT = Path(__file__).parent / "scripts" / "load.sh"


@dataclass(frozen=True)
class CarriedImage:
    """A folder that was written; `size` in bytes."""

    folder: Path
    image: str
    size: int


def make(
    project: Project, lock: Lock, built: Built, key: str, output: Path, scratch: Path, progress: Progress
) -> CarriedImage:
    """Write the folder. Raises VettedError when there is no valid certificate, StorageError when something is there."""
    output_folder.refuse(output)
    image = built.image.manifest
    certificates = publish.valid(project, lock, image)
    public = signing.public(key, scratch)
    keys.refuse_revoked(project, public)
    progress("making and signing the statements")
    envelopes = [
        signing.sign(statement, key, scratch)
        for statement in publish.statements(project, lock, built, certificates, ours=())
    ]
    with output_folder.folder(output) as partial:
        progress(f"copying the image, {quantities.size(built.image.size)}")
        shutil.copytree(built.image.layout, partial / IMAGE)
        attached.add(partial / IMAGE, built.image, envelopes)
        shutil.copyfile(public, partial / KEY)
        for number, envelope in enumerate(envelopes):
            kind = NAMES[attached.KINDS[envelope.predicate_type]]
            name = f"{kind}-{number + 1}" if kind == "certificate" and number else kind
            (partial / f"{name}.dsse.json").write_bytes(envelope.raw)
            # Tools that read a bill of materials expect it without the statement around it.
            document = envelope.statement["predicate"] if kind == "sbom" else envelope.statement
            readable = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            (partial / f"{name}.json").write_text(readable, encoding="utf-8")
        environment = _compose(project, lock, built, partial)
        verdicts.write(project, lock, image, certificates, partial / JUDGED, scratch)
        folders.sign(partial, environment, key, scratch)
        progress("verifying it, offline")
        verdict = verify.local(project, partial / IMAGE, None, [partial / KEY], scratch, None)
        doubts = [*verdict.doubts, *check(partial, partial / KEY, scratch)]
        if not verdict.good or doubts:
            raise errors.VettedError(
                "\n".join([f"{output} would not verify; nothing was written", *doubts]),
                cause="a blob of the image was changed after it was built",
                next_step=f"vetted build {word(lock.name)}",
            )
    return CarriedImage(output, image, sum(path.stat().st_size for path in output.rglob("*") if path.is_file()))


def layout(project: Project, folder: Path) -> tuple[Path, Path | None]:
    """The OCI layout in a folder that a person names, and the carried folder around it, if there is one.

    A list that was taken away does not make a layout alone of a carried folder: then its absence is a doubt.
    """
    nested = (folder / IMAGE / "index.json").exists() and not (folder / "index.json").exists()
    if nested or _has(folder, TRACES) or _composed(folder):
        return folder / IMAGE, folder
    # A link leads into a carried folder as well.
    for path in (folder, folder.resolve()):
        composed = path.name == IMAGE and path.parent != project.root and _composed(path.parent)
        # Other folders have a `load` or a `judged` as well.
        if (
            composed
            or _has(path.parent, [folders.MANIFEST])
            or all(_has(path.parent, [name]) for name in (LOAD, JUDGED))
        ):
            return folder, path.parent
    return folder, None


def _has(folder: Path, names: Sequence[str]) -> bool:
    return any(os.path.lexists(folder / name) for name in names)


def _composed(folder: Path) -> bool:
    return any(path for pattern in READ_BY_COMPOSE for path in folder.glob(pattern))


def judged(
    verdict: Verdict, place: Path, around: Path | None, named: Sequence[Path], public: Sequence[Path], scratch: Path
) -> Verdict:
    """The verdict on the image of a layout, and on the carried folder around it.

    `place`: the layout. `named`: the keys where a person has them; `public`: the copies that are used.
    """
    root = (around or place).resolve()
    doubts = [
        f"the key {key.name} lies in the folder that it is to prove: who changed the folder may have changed the key"
        "\nnext: the same command with --key and the copy of cosign.pub that you have from whoever signs"
        for key in named
        if key.resolve().is_relative_to(root)
    ]
    notes = []
    if around is None:
        notes.append(ALONE)
    else:
        fewest = min((check(around, key, scratch) for key in public), key=len)
        doubts += fewest
        if added := folders.unsigned(around):
            notes.append(f"{added} files in {folders.RUNS}/ and {CACHE}/ are of this host: no signature covers them")
    return dataclasses.replace(verdict, doubts=(*verdict.doubts, *doubts), notes=(*verdict.notes, *notes))


def check(folder: Path, key: Path, scratch: Path) -> list[str]:
    """The files of such a folder that were changed, removed or added after it was signed, in words."""
    return folders.check(folder, key, scratch)


def _compose(project: Project, lock: Lock, built: Built, folder: Path) -> dict[str, str]:
    """Write what `docker compose` needs, and the script `load`; returns the variables of the .env that `load` writes,
    each with the pattern of its value."""
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
        dotenv.CACHE: re.escape(f"./{CACHE}"),
        dotenv.MEMORY: "[1-9][0-9]*m",
    }


def script(image: str, stack: str, files: str) -> str:
    """The script that gives Docker the image and writes .env. `files`: the compose files."""
    template = Template(SCRIPT.read_text(encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True)
    rendered: str = template.render(
        image=image, stack=stack, files=files, judged=JUDGED, cache=CACHE, nobody=dotenv.NOBODY_IN_PARTICULAR,
        spared=dotenv.SPARED,
    )  # fmt: skip
    return rendered
