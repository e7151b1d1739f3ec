"""The Docker engine: whether it answers, and loading images into it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from builder.base import errors, process, text
from builder.base.text import word
from builder.image import oci

# `docker load` leaves out layers that Docker has. If the last other image with one of them is removed at this moment,
# the layer goes before the image is there.
REMOVED = re.compile(r"content digest \S+: not found")


@dataclass(frozen=True)
class Docker:
    """A Docker engine that answered."""

    version: str
    buildkit: str
    kernel: str


def docker(name: str | None = None) -> Docker:
    """The Docker engine. `name`: a builder in place of the current one. Raises MissingToolError with how to get one."""
    docker_options, options = chosen(name)
    how = "sudo scripts/install-engine (Debian 12), or start your Docker; to certify without one: --engine host"
    try:
        result = process.run(["docker", *docker_options, "version", "--format", "{{json .Server}}"], timeout=20)
        builder = process.run(["docker", *docker_options, "buildx", "inspect", *options[1:]], timeout=20)
    except errors.VettedError as error:
        raise errors.MissingToolError(f"no Docker engine answers: {error.what}", next_step=how) from error
    if result.returncode != 0:
        message = (result.stderr.strip().splitlines() or ["docker said nothing"])[-1]
        raise errors.MissingToolError(
            f"no Docker engine answers: {message}",
            cause="Docker is not running, or this user may not use it",
            next_step=how,
        )
    if builder.returncode != 0 and name:
        raise errors.MissingToolError(
            f"buildx has no builder {name} that answers", cause=text.line(builder.stderr.strip()),
            next_step="docker buildx ls; docker buildx create --name NAME …",
        )  # fmt: skip
    if builder.returncode != 0:
        raise errors.MissingToolError(
            "Docker answers, but it has no buildx", cause="Debian 12's own docker.io is too old", next_step=how
        )
    server = json.loads(result.stdout)
    lines = builder.stdout.splitlines()
    version = next((line.split()[-1] for line in lines if line.startswith("BuildKit")), "unknown")
    # Debian builds its Docker without BuildKit's version, which is the engine's own.
    buildkit = f"of Docker {server['Version']}" if version in ("unknown", "v0.0.0+unknown") else version
    return Docker(server["Version"], buildkit, server["KernelVersion"])


def lacks_compose() -> bool:
    """Is the docker client there, without the plugin that reads compose.yaml?"""
    try:
        return process.run(["docker", "compose", "version"], timeout=20).returncode != 0
    except errors.VettedError:  # there is no client either
        return False


def chosen(name: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The options of docker, and those of its buildx, that choose a builder.

    The engine of a context of docker is a builder, too, but buildx refuses its name.
    """
    if name is None:
        return (), ()
    known = process.run(["docker", "context", "inspect", name]).returncode == 0
    return (("--context", name), ()) if known else ((), ("--builder", name))


@dataclass(frozen=True)
class Loaded:
    """An image in Docker. `reference` contains its digest: unlike a tag, it cannot come to point to another image."""

    digest: str  # of the manifest
    image_id: str  # Docker's ID: the manifest's digest in the containerd store, the config's in the classic store
    reference: str


def load(image: oci.Image, tag: str) -> Loaded:
    """Load an OCI layout into Docker under a tag, and return the reference that runs exactly this image."""
    reported = _reported(tag)
    if reported not in (image.manifest, image.config):
        _load(image)
        reported = _reported(tag)
    if reported is None or reported not in (image.manifest, image.config):
        raise errors.VettedError(
            f"Docker reports {reported} for {tag}, but the image that was built is {image.manifest}",
            cause="another clone loaded its image under the same tag at this moment",
            next_step=f"docker image rm {word(tag)}, then run this again",
        )
    reference = f"{tag.rpartition(':')[0]}@{reported}" if reported == image.manifest else reported
    return Loaded(image.manifest, reported, reference)


def _load(image: oci.Image) -> None:
    loading = ["sh", "-c", 'tar -C "$1" -cf - . | docker load', "sh", str(image.layout)]
    result = process.run(loading, tool="docker")
    if result.returncode != 0 and REMOVED.search(result.output):
        result = process.run(loading, tool="docker")
    if result.returncode != 0:
        raise errors.from_tool("loading the image into Docker", result.output, next_step="docker info")


def _reported(tag: str) -> str | None:
    result = process.run(["docker", "image", "inspect", "--format", "{{.Id}}", tag])
    return result.stdout.strip() if result.returncode == 0 else None
