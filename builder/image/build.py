"""Building the image of a lock with BuildKit: an OCI layout, reproducible bit for bit on every machine."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from builder.base import errors, seal
from builder.base.project import Project, write
from builder.base.text import word
from builder.image import buildx, compare, daemon, elf, oci, origin, render, shadowing, target
from builder.image.buildx import BuildStep, Reporter
from builder.image.origin import Origin
from builder.intent.platform import AMD64
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Built:
    """An image that was built here, and what it was built from."""

    image: oci.Image
    reference: str
    buildkit: str  # its version
    inputs: str  # the digest of everything that the image is made of
    origin: Origin | None = field(default=None, compare=False)  # None where the build did not record it


@dataclass(frozen=True)
class Proof:
    """Two builds of the same lock: the digests of their manifests, and the first difference."""

    first: str
    second: str
    difference: compare.Difference | None


# --- building ------------------------------------------------------------------------------------------------------


def build(project: Project, lock: Lock, scratch: Path, report: Reporter) -> Built:
    """Build the image of a lock, or return the one that was built from the same inputs."""
    refuse_stale(project, lock)
    if built := existing(project, lock):
        return built
    docker = daemon.docker()
    return keep(project, lock, _run(project, lock, scratch, report, no_cache=False), docker, scratch)


def prove(project: Project, lock: Lock, scratch: Path, report: Reporter) -> Proof:
    """Build twice without any cache and compare every digest. Of two equal images one is kept, as `build` keeps it."""
    images = []
    for attempt in ("first", "second"):
        folder = scratch / attempt
        folder.mkdir()
        images.append(anew(project, lock, folder, report))
    first, second = images
    difference = compare.difference(first, second)
    if difference is None:
        keep(project, lock, second.layout, daemon.docker(), folder)
    return Proof(first.manifest, second.manifest, difference)


def anew(project: Project, lock: Lock, scratch: Path, report: Reporter) -> oci.Image:
    """Build without any cache, the root filesystem included, and leave the image in `scratch`."""
    refuse_stale(project, lock)
    daemon.docker()
    return oci.read(_run(project, lock, scratch, report, no_cache=True))


def refuse_stale(project: Project, lock: Lock) -> None:
    """Raise VettedError when the committed Dockerfile is not what the lock and the templates render to."""
    if difference := render.difference(project, lock):
        where = project.relative(render.path_of(project, lock))
        raise errors.VettedError(
            f"{where} is not what its lock renders to\n{difference.rstrip()}",
            cause="it was edited by hand, or the lock or a template changed",
            next_step=f"vetted render {word(lock.name)}",
        )


def _run(project: Project, lock: Lock, scratch: Path, report: Reporter, *, no_cache: bool) -> Path:
    """Run buildx once, and return the folder of the OCI layout."""
    options = target.make(project, lock, scratch, report, fresh=no_cache)
    layout = scratch / target.LAYOUT
    if not no_cache:
        _seed(project, lock, layout)
    argv = [
        "docker", "buildx", "build", "--progress=rawjson",
        "--file", options.dockerfile,
        *(f"--tag={tag}" for tag in options.tags),
        *(f"--platform={platform}" for platform in options.platforms),
        *(f"--attest={attest}" for attest in options.attest),
        *(f"--build-arg={name}={value}" for name, value in options.args.items()),
        *(f"--build-context={name}={folder}" for name, folder in options.contexts.items()),
        *(f"--output={output}" for output in options.output),
        *(["--no-cache"] if no_cache else []),
        options.context,
    ]  # fmt: skip
    buildx.run(lock.image, argv, report)
    shutil.rmtree(options.context)
    image = oci.read(layout)
    oci.sweep(image)
    if lock.platform is not AMD64:
        report(BuildStep(0, 0, f"{lock.image}: every program and library is for {lock.platform.machine}"))
        elf.refuse_others(image, lock.platform)
    return layout


def _seed(project: Project, lock: Lock, layout: Path) -> None:
    """Start with the layers of the image that was built here last, and of an extension's parent, if there are any."""
    for name in dict.fromkeys((lock.image, lock.parent.image)):
        with suppress(errors.BadInputError):
            oci.seed(layout, oci.read(project.state / "images" / name))


# --- what was built here -------------------------------------------------------------------------------------------


def existing(project: Project, lock: Lock) -> Built | None:
    """The image of this very lock and Dockerfile, if it was built here and nothing about it has changed.

    Every blob is hashed again, the config must name this stack and lock, and the record must be sealed.
    """
    record = _record(project, lock)
    try:
        data = json.loads(record.read_text())
        inputs, manifest, buildkit = data["inputs"], data["manifest"], data["buildkit"]
        if inputs != target.inputs_of(project, lock):
            return None
        source = Origin.model_validate_json(json.dumps(data["origin"])) if "origin" in data else None
        image = oci.read(project.state / "images" / lock.image, manifest)
        if not seal.intact(_seal(record), _sealed_as(lock, inputs, buildkit, source), manifest):
            return None
        labels = oci.labels(image)
        if any(labels.get(name) != value for name, value in own_labels(lock).items()) or any(oci.damaged(image)):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, errors.BadInputError):
        return None
    return Built(image, target.tag(lock, inputs), buildkit, inputs, source)


def needed(project: Project, lock: Lock) -> Built:
    """The image of this very lock and Dockerfile. Raises VettedError when it is not here."""
    if built := existing(project, lock):
        return built
    raise errors.VettedError(
        f"the image of {lock.name} is not here: nothing was built from this lock, or its files are gone",
        next_step=f"vetted certify {word(lock.name)} --engine docker",
    )


def own_labels(lock: Lock) -> dict[str, str]:
    """The labels by which this stack's image differs from every other."""
    return {
        "org.opencontainers.image.title": lock.stack.title,
        "dev.vetted.stack": lock.name,
        "dev.vetted.lock": lock.digest,
    }


def keep(project: Project, lock: Lock, layout: Path, docker: daemon.Docker, scratch: Path) -> Built:
    """Move a layout that was just built to where `existing` looks for it.

    Raises BadInputError when the layer of an extension changes what its parent was certified with.
    """
    shadowing.refuse(lock, oci.read(layout))
    images = project.state / "images"
    images.mkdir(parents=True, exist_ok=True)
    final = images / lock.image
    # The record is removed first and written last: while it exists, the layout beside it is complete.
    _record(project, lock).unlink(missing_ok=True)
    shutil.rmtree(final, ignore_errors=True)
    # The inputs when the context was made, not today's: somebody may have edited a file during the build.
    inputs = (layout.parent / target.INPUTS).read_text()
    layout.rename(final)
    image = oci.read(final)
    built = Built(image, target.tag(lock, inputs), docker.buildkit, inputs, origin.of(project, lock.name))
    put_record(project, lock, built, scratch)
    return built


def put_record(project: Project, lock: Lock, built: Built, scratch: Path) -> None:
    """Record that an image was built here."""
    record = _record(project, lock)
    data: dict[str, object] = {"inputs": built.inputs, "manifest": built.image.manifest, "buildkit": built.buildkit}
    if built.origin:
        data["origin"] = built.origin.model_dump(mode="json")
    what = _sealed_as(lock, built.inputs, built.buildkit, built.origin)
    seal.put(_seal(record), what, built.image.manifest, scratch)
    write(record, json.dumps(data, indent=2) + "\n", scratch)


def _record(project: Project, lock: Lock) -> Path:
    return project.state / "images" / f"{lock.image}.json"


def _seal(record: Path) -> Path:
    return record.with_suffix(".seal")


def _sealed_as(lock: Lock, inputs: str, buildkit: str, source: Origin | None) -> str:
    return f"image of {lock.image} from {inputs} by {buildkit}" + (f", {source.model_dump_json()}" if source else "")
