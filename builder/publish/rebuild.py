"""Judge an image by building it again from this project's lock.

Two images with the same digest are the same bytes. When the image that is built here has the same digest, it does not
matter who built, signed or served the other one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.base.project import Project
from builder.image import compare, oci
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.publish import attached, registry
from builder.publish.reference import Reference, Repository
from builder.publish.refusal import UnusableError
from builder.publish.verify import Verdict

SAME = "rebuilt from the lock: the same digest: nothing of this image needs to be trusted"
UNJUDGED = "only the image was judged: signatures and certificates need --key"
LONGEST = 200  # characters of a label that are read

Builder = Callable[[Lock, Path], oci.Image]  # builds the image of a lock anew, in that folder


@dataclass(frozen=True)
class Rebuild:
    """The result of a rebuild. `digest`: of the image that was built here; None when none was, and a doubt says why."""

    image: str
    stack: str | None = None
    lock: str | None = None
    digest: str | None = None
    doubts: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        return self.digest is not None and self.digest == self.image and not self.doubts

    def alone(self, reference: str) -> Verdict:
        """The verdict when nothing else was judged."""
        notes = (SAME, UNJUDGED) if self.identical else (UNJUDGED,)
        return Verdict(reference, self.image, self.stack, self.lock, doubts=self.doubts, notes=notes)

    def added_to(self, verdict: Verdict) -> Verdict:
        """The verdict on signatures and certificates, with the doubts and notes of the rebuild."""
        doubts = tuple(dict.fromkeys((*verdict.doubts, *self.doubts)))
        notes = (*verdict.notes, SAME) if self.identical else verdict.notes
        return dataclasses.replace(verdict, doubts=doubts, notes=notes)


def remote(project: Project, reference: Reference, image: str | None, builder: Builder, scratch: Path) -> Rebuild:
    """Rebuild the image in a registry; `image` is its digest, if it was looked up already. Raises NetworkError."""
    repository = reference.repository
    digest = image or reference.digest or registry.resolve(repository, reference.tag or "")
    content = registry.manifest(repository, digest) if digest else None
    if digest is None or content is None:
        return Rebuild(digest or "", doubts=(f"there is no image {reference}",))
    try:
        theirs = _described(repository, content, scratch / "described")
    except (errors.BadInputError, UnusableError, ValueError, KeyError, TypeError, RecursionError):
        return Rebuild(digest, doubts=("it is not the image of a stack: its manifest or config cannot be read",))
    return _judge(project, theirs, builder)


def local(project: Project, layout: Path, image: str | None, builder: Builder) -> Rebuild:
    """Rebuild the image in an OCI layout (`image`, or the only one); reads every blob. Raises BadInputError."""
    theirs = oci.read(layout, attached.subject(layout, image))
    rebuild = _judge(project, theirs, builder)
    damages = tuple(f"the image is damaged: {damage}" for damage in oci.damaged(theirs))
    return dataclasses.replace(rebuild, doubts=(*damages, *rebuild.doubts))


def _described(repository: Repository, manifest: bytes, layout: Path) -> oci.Image:
    """An image in a registry by its manifest and config: no layer of it is fetched."""
    oci.begin(layout)
    descriptor = oci.add(layout, manifest, oci.MANIFEST)
    oci.finish(layout, [descriptor])
    config = oci.json_of(layout, descriptor["digest"])["config"]["digest"]
    oci.add(layout, registry.blob(repository, str(config)), "application/vnd.oci.image.config.v1+json")
    return oci.read(layout)


def _judge(project: Project, theirs: oci.Image, builder: Builder) -> Rebuild:
    # The image wrote its labels itself. They choose what is built, and the digest decides.
    try:
        labels = oci.labels(theirs)
    except (OSError, ValueError, RecursionError):
        labels = {}
    name, locked = (labels.get(key, "")[:LONGEST] or None for key in ("dev.vetted.stack", "dev.vetted.lock"))
    rebuild = Rebuild(theirs.manifest, name, locked)
    if name is None or name not in stack.names(project):
        what = f"this project has no stack {name!r}" if name else "the image names no stack"
        return dataclasses.replace(rebuild, doubts=(f"{what}: there is no lock to rebuild it from",))
    lock = lockfile.load(project, name)
    if locked != lock.digest:
        other = (
            f"it was built from another lock of {name} than this project's\nexpected {lock.digest}\ngot      {locked}"
        )
        return dataclasses.replace(rebuild, doubts=(other,))
    with project.holding(name) as scratch:
        ours = builder(lock, scratch)
        doubts = () if ours.manifest == theirs.manifest else (_difference(ours, theirs),)
    return dataclasses.replace(rebuild, digest=ours.manifest, doubts=doubts)


def _difference(ours: oci.Image, theirs: oci.Image) -> str:
    """The doubt that they differ, with the first difference: down to the file where the layers of both are here."""
    first = None
    if all(oci.blob(theirs.layout, layer.digest).is_file() for layer in theirs.layers):
        try:
            difference = compare.difference(ours, theirs)
            first = difference.what if difference else None
        except (errors.BadInputError, ValueError, RecursionError):
            first = None
    return (
        "rebuilt from the lock, it is another image: its content is not what the lock says, or another version of "
        f"BuildKit built it\nexpected {ours.manifest}\ngot      {theirs.manifest}\nfirst difference: "
        f"{first or _first_digest(ours, theirs)}"
    )


def _first_digest(ours: oci.Image, theirs: oci.Image) -> str:
    for number, (layer, other) in enumerate(zip(ours.layers, theirs.layers, strict=False), start=1):
        if layer.diff_id != other.diff_id:
            return f"layer {number} has other files: {other.diff_id}"
        if layer.digest != other.digest:
            return f"layer {number} has the same files, compressed differently: {other.digest}"
    if len(ours.layers) != len(theirs.layers):
        return f"it has {len(theirs.layers)} layers, and not {len(ours.layers)}"
    return "config" if ours.config != theirs.config else "manifest"
