"""The images of a stack for all its platforms, and an index by which each machine pulls its own.

The index has a tag of its own, `<stack>.index`: the stack's tag names what is certified, and the suite has run on amd64
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.base import quantities
from builder.base.project import Project
from builder.image import build, index
from builder.image.build import Built
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.publish import registry, signature, signing
from builder.publish.publish import Progress
from builder.publish.reference import Repository

SUFFIX = ".index"


@dataclass(frozen=True)
class Index:
    """A published index. `images`: Docker's name of each platform -> the digest of its image."""

    digest: str
    tag: str
    images: Mapping[str, str]
    changed: bool


def missing(project: Project, lock: Lock) -> list[Lock]:
    """The stack's locks for other platforms whose image was not built here, or is no longer what was built."""
    return [other for other in _others(project, lock) if build.existing(project, other) is None]


def publish(
    project: Project, lock: Lock, built: Built, repository: Repository, key: str, scratch: Path, progress: Progress,
    timestamp_server: str | None = None,
) -> Index | None:  # fmt: skip
    """Push the images for the other platforms, and the index, signed; its tag moves last. None where one is missing.

    `scratch` is a folder of its own. Raises VettedError and its kinds; the tag is then as it was.
    """
    others = _others(project, lock)
    there = [image.image for other in others if (image := build.existing(project, other))]
    if not others or len(there) < len(others):
        return None
    images = {
        locked.platform.docker: image for locked, image in zip([lock, *others], [built.image, *there], strict=True)
    }
    layout = scratch / "index"
    digest, tag = index.make(list(images.values()), layout), f"{lock.name}{SUFFIX}"
    changed = False
    if registry.manifest(repository, digest) is None:
        progress(f"pushing the images for {', '.join(images)}, {quantities.size(sum(image.size for image in there))}")
        registry.push(repository, layout, digest)
        changed = True
    progress("signing the index")
    changed |= signature.add(repository, digest, key, signing.public(key, scratch), scratch, timestamp_server)
    if registry.resolve(repository, tag) != digest:
        progress(f"moving the tag {tag}")
        registry.tag(repository, digest, tag)
        changed = True
    return Index(digest, tag, {platform: image.manifest for platform, image in images.items()}, changed)


def _others(project: Project, lock: Lock) -> list[Lock]:
    return [other for other in lockfile.load_all(project, lock.name) if other.platform is not lock.platform]
