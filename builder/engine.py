"""Where a stack runs: `docker` (in its image, hardened) or `host` (in a virtual environment of the same lock)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from builder import errors, oci, process


@dataclass(frozen=True)
class Docker:
    """A Docker engine that answered."""

    version: str
    buildkit: str
    kernel: str


def docker() -> Docker:
    """The Docker engine. Raises MissingToolError with how to get one."""
    how = "sudo scripts/install-engine (Debian 12), or start your Docker; or run with --engine host"
    try:
        result = process.run(["docker", "version", "--format", "{{json .Server}}"], timeout=20)
        builder = process.run(["docker", "buildx", "inspect"], timeout=20)
    except errors.VettedError as error:
        raise errors.MissingToolError(f"no Docker engine answers: {error.what}", next_step=how) from error
    if result.returncode != 0:
        said = (result.stderr.strip().splitlines() or ["docker said nothing"])[-1]
        raise errors.MissingToolError(
            f"no Docker engine answers: {said}",
            cause="Docker is not running, or this user may not use it",
            next_step=how,
        )
    if builder.returncode != 0:
        raise errors.MissingToolError(
            "Docker answers, but it has no buildx", cause="Debian 12's own docker.io is too old", next_step=how
        )
    server = json.loads(result.stdout)
    found = next((line.split()[-1] for line in builder.stdout.splitlines() if line.startswith("BuildKit")), "unknown")
    # Debian builds its Docker without BuildKit's version; the one inside is the engine's own.
    buildkit = f"of Docker {server['Version']}" if found in ("unknown", "v0.0.0+unknown") else found
    return Docker(server["Version"], buildkit, server["KernelVersion"])


def load(image: oci.Image, reference: str) -> str:
    """Load an OCI layout into Docker and return the digest that Docker itself reports for it.

    With the containerd image store that is the manifest's digest; the classic store knows only the config's.
    """
    if _reported(reference) in (image.manifest, image.config):
        return image.manifest
    loading = ["sh", "-c", 'tar -C "$1" -cf - . | docker load', "sh", str(image.layout)]
    process.check("loading the image into Docker", loading, next_step="docker info")
    reported = _reported(reference)
    if reported not in (image.manifest, image.config):
        raise errors.VettedError(
            f"Docker reports {reported} for {reference}, but the image that was built is {image.manifest}",
            next_step=f"docker image rm {reference}, then run this again",
        )
    return image.manifest


def _reported(reference: str) -> str | None:
    result = process.run(["docker", "image", "inspect", "--format", "{{.Id}}", reference])
    return result.stdout.strip() if result.returncode == 0 else None


RUN_LABEL = "dev.vetted.run"
# NCCL's ranks talk through shared memory, of which a container has 64 MB if nobody asks for more.
GPUS = ("--gpus", "all", "--shm-size", "8g")


def remove_leftovers(stack: str) -> None:
    """Remove containers that a killed run of this stack left behind; the caller holds the stack."""
    listed = process.run(["docker", "ps", "--all", "--quiet", "--filter", f"label={RUN_LABEL}={stack}"])
    if found := listed.stdout.split():
        process.run(["docker", "rm", "--force", *found])


def in_image(suite: Path, stack: str, reference: str, device: str, memory_mib: int) -> list[str]:
    """The command that runs the suite inside an image with nothing that training does not need.

    The container ends with this process: its standard input closes, and the suite's runner exits on that.
    """
    return [
        "docker", "run", "--rm", "--interactive", "--label", f"{RUN_LABEL}={stack}",
        "--network", "none",
        "--read-only",
        "--tmpfs", "/tmp:exec,mode=1777",  # exec: compiled helpers are loaded from there
        "--user", "1000:1000",
        "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges",
        "--pids-limit", "1024",
        "--memory", f"{memory_mib}m",
        *(GPUS if device == "cuda" else ()),
        "--volume", f"{suite}:/vetted:ro",
        "--env", "PYTHONPATH=/vetted",
        "--env", "TMPDIR=/tmp",
        "--workdir", "/tmp",
        reference,
        "python", "-m", "smoke",
    ]  # fmt: skip


def on_host(environment: Path) -> list[str]:
    return [str(environment / "bin" / "python"), "-m", "smoke"]
