"""The target of a build: the options that BuildKit gets for an image, and the digest of everything it is made of."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

from builder.base.project import Project, sha256
from builder.image import context, foreign, render, rootfs
from builder.image.buildx import BuildStep, Reporter
from builder.intent.platform import AMD64
from builder.lock import lockfile
from builder.lock.lockfile import Lock

INPUTS = "inputs"  # the file beside a context that has the digest of everything the context was made of
LAYOUT = "layout"  # the folder that a build leaves beside its context
# One zstd level for all stacks: BuildKit compresses a layer that two stacks share only once, at the level of the first
# build. With two levels, an image's bytes would depend on what was built before. For the CPU stack, level 3 made
# 817 MB, level 7 makes 768 MB in a few seconds more, and level 9 would make 706 MB in minutes more.
LEVEL = 7
_EXPORT = f"compression=zstd,compression-level={LEVEL},force-compression=true"


@dataclass(frozen=True)
class Target:
    """All options of one image's build. The fields are those of a bake file."""

    context: str
    contexts: dict[str, str]
    dockerfile: str
    args: dict[str, str]
    tags: list[str]
    platforms: list[str]
    attest: list[str]
    output: list[str]


def make(project: Project, lock: Lock, scratch: Path, report: Reporter, *, fresh: bool) -> Target:
    """Make the build context in `scratch`. The build will leave the image there too, as an OCI layout."""
    dockerfile = render.path_of(project, lock)
    inputs = inputs_of(project, lock, dockerfile.read_text())
    (scratch / INPUTS).write_text(inputs)
    report(BuildStep(0, 0, f"{lock.image}: root filesystem from the locked Debian packages"))
    folder = context.make(project, lock, scratch, report, fresh=fresh)
    return Target(
        context=str(folder),
        contexts={name: str(folder / name) for name in ("uv", "wheels")},
        dockerfile=str(dockerfile),
        args={"SOURCE_DATE_EPOCH": str(lock.epoch)},
        tags=[tag(lock, inputs)],
        platforms=[lock.platform.docker],
        # Attestations are attached when an image is published: BuildKit's own would change its digest.
        attest=["type=provenance,disabled=true", "type=sbom,disabled=true"],
        output=[f"type=oci,tar=false,{_csv(f'dest={scratch / LAYOUT}')},{_EXPORT}"],
    )


def caching(cache: str, lock: Lock) -> str:
    """Where a build writes its layers; `cache` is a repository. They are those of the image, compressed alike."""
    return (
        f"type=registry,{_csv(f'ref={cache}:{_tag(lock)}')},mode=max,image-manifest=true,oci-mediatypes=true,{_EXPORT}"
    )


def cached(cache: str, lock: Lock) -> str:
    """Where the layers of a stack's last build are, if there was one."""
    return f"type=registry,{_csv(f'ref={cache}:{_tag(lock)}')}"


def _tag(lock: Lock) -> str:
    return f"cache-{lock.image}"


def inputs_of(project: Project, lock: Lock, dockerfile: str | None = None) -> str:
    """The digest of everything that an image of this lock is made of: when it is unchanged, nothing is rebuilt.

    `dockerfile`: the text of the Dockerfile; without it, what the lock renders to.
    """
    if dockerfile is None:
        dockerfile = render.dockerfile(project, lock)
    inputs = [context.description(project, lock), dockerfile, rootfs.RECIPE, _EXPORT]
    if lock.platform is not AMD64:
        inputs += [foreign.RECIPE, lockfile.load(project, lock.name).digest]  # its base is made of that for amd64
    return sha256(json.dumps(inputs).encode())


def reference(project: Project, lock: Lock) -> str:
    """The image's name in Docker: the stack, and a tag from the digest of its inputs."""
    return tag(lock, inputs_of(project, lock))


def tag(lock: Lock, inputs: str) -> str:
    """The name in Docker of a lock's image with these inputs (a digest)."""
    return f"vetted/{lock.image}:{inputs.removeprefix('sha256:')[:12]}"


def _csv(field: str) -> str:
    """Quote a field of a buildx option, which is a line of CSV: a path may contain commas and quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([field])
    return line.getvalue()
