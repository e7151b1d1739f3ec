"""Judging an image by building it again from this project's lock.

Two images of one digest are the same bytes. When the image that is built here has the digest that was asked for, it
does not matter who built, signed or served the other one.
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
from builder.publish import refusal, registry
from builder.publish.reference import Reference, Repository
from builder.publish.verify import Verdict

SAME = "rebuilt from the lock: the same digest: nothing of this image needs to be trusted"
UNJUDGED = "only the image was judged: signatures and certificates need --key"
LONGEST = 200  # characters of a label that are looked at

Build = Callable[[Lock, Path], oci.Image]  # builds anew, in that folder


@dataclass(frozen=True)
class Rebuilt:
    """What came of it. `made` is the digest of what was built here; None: nothing was, and a doubt says why."""

    image: str
    stack: str | None = None
    lock: str | None = None
    made: str | None = None
    doubts: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        return self.made is not None and self.made == self.image and not self.doubts

    def alone(self, reference: str) -> Verdict:
        """The verdict where nothing else was judged."""
        notes = (SAME, UNJUDGED) if self.identical else (UNJUDGED,)
        return Verdict(reference, self.image, self.stack, self.lock, doubts=self.doubts, notes=notes)

    def added_to(self, verdict: Verdict) -> Verdict:
        """The verdict of signatures and certificates, with what the rebuild says for or against the image."""
        doubts = tuple(dict.fromkeys((*verdict.doubts, *self.doubts)))
        notes = (*verdict.notes, SAME) if self.identical else verdict.notes
        return dataclasses.replace(verdict, doubts=doubts, notes=notes)


def remote(project: Project, reference: Reference, image: str | None, build: Build, scratch: Path) -> Rebuilt:
    """Rebuild the image in a registry; `image` is its digest, if it was looked up already. Raises NetworkError."""
    repository = reference.repository
    digest = image or reference.digest or registry.resolve(repository, reference.tag or "")
    content = registry.manifest(repository, digest) if digest else None
    if digest is None or content is None:
        return Rebuilt(digest or "", doubts=(f"there is no image {reference}",))
    try:
        held = _described(repository, content, scratch / "described")
    except (errors.BadInputError, refusal.UnusableError, ValueError, KeyError, TypeError, RecursionError):
        return Rebuilt(digest, doubts=("it is not the image of a stack: its manifest or config cannot be read",))
    return _judge(project, held, build)


def local(project: Project, layout: Path, image: str, build: Build) -> Rebuilt:
    """Rebuild the image in an OCI layout, each blob of which is read as well. Raises BadInputError."""
    held = oci.read(layout, image)
    found = _judge(project, held, build)
    broken = tuple(f"the image is damaged: {what}" for what in oci.damaged(held))
    return dataclasses.replace(found, doubts=(*broken, *found.doubts))


def only_image(layout: Path) -> str:
    """The digest of the one image in an OCI layout, beside which its attestations may lie. Raises BadInputError."""
    try:
        found = [one for one in oci.manifests(layout) if "subject" not in oci.json_of(layout, one)]
    except (OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{layout} is not an OCI layout: {error}", cause="another folder was meant, or a copy was cut short"
        ) from error
    if len(found) != 1:
        first = next(iter(found), "sha256:…")
        raise errors.BadInputError(f"{layout} holds {len(found)} images", next_step=f"name one: {layout}@{first}")
    return found[0]


def _described(repository: Repository, manifest: bytes, layout: Path) -> oci.Image:
    """An image in a registry by its manifest and config: no layer of it is fetched."""
    oci.begin(layout)
    descriptor = oci.add(layout, manifest, oci.MANIFEST)
    oci.finish(layout, [descriptor])
    config = oci.json_of(layout, descriptor["digest"])["config"]["digest"]
    oci.add(layout, registry.blob(repository, str(config)), "application/vnd.oci.image.config.v1+json")
    return oci.read(layout)


def _judge(project: Project, held: oci.Image, build: Build) -> Rebuilt:
    # The labels are the image's own words. They choose what is built, and the digest decides.
    try:
        said = oci.labels(held)
    except (OSError, ValueError, RecursionError):
        said = {}
    name, locked = (said.get(key, "")[:LONGEST] or None for key in ("dev.vetted.stack", "dev.vetted.lock"))
    found = Rebuilt(held.manifest, name, locked)
    if name is None or name not in stack.names(project):
        what = f"this project has no stack {name!r}" if name else "the image names no stack"
        return dataclasses.replace(found, doubts=(f"{what}: there is no lock to rebuild it from",))
    ours = lockfile.load(project, name)
    if locked != ours.digest:
        other = (
            f"it was built from another lock of {name} than this project's\nexpected {ours.digest}\ngot      {locked}"
        )
        return dataclasses.replace(found, doubts=(other,))
    with project.holding(name) as scratch:
        made = build(ours, scratch)
        doubts = () if made.manifest == held.manifest else (_difference(made, held),)
    return dataclasses.replace(found, made=made.manifest, doubts=doubts)


def _difference(made: oci.Image, held: oci.Image) -> str:
    """That they differ, and the first place: down to the file where the layers of both are here."""
    first = None
    if all(oci.blob(held.layout, layer.digest).is_file() for layer in held.layers):
        try:
            difference = compare.difference(made, held)
            first = difference.what if difference else None
        except (errors.BadInputError, ValueError, RecursionError):
            first = None
    return (
        "rebuilt from the lock, it is another image: its content is not what the lock says, or another version of "
        f"BuildKit built it\nexpected {made.manifest}\ngot      {held.manifest}\nfirst difference: "
        f"{first or _first_digest(made, held)}"
    )


def _first_digest(made: oci.Image, held: oci.Image) -> str:
    for number, (ours, theirs) in enumerate(zip(made.layers, held.layers, strict=False), start=1):
        if ours.diff_id != theirs.diff_id:
            return f"layer {number} has other files: {theirs.diff_id}"
        if ours.digest != theirs.digest:
            return f"layer {number} has the same files, compressed differently: {theirs.digest}"
    if len(made.layers) != len(held.layers):
        return f"it has {len(held.layers)} layers, and not {len(made.layers)}"
    return "config" if made.config != held.config else "manifest"
