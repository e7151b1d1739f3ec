"""Where a stack runs: `docker` (in its image, hardened) or `host` (in a virtual environment of the same lock)."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process
from builder.base.project import Project, sha256
from builder.image import oci


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


@dataclass(frozen=True)
class Loaded:
    """An image in Docker. `reference` names it by digest: unlike a tag, it cannot come to mean another image."""

    digest: str  # of the manifest
    image_id: str  # Docker's own name: the manifest's digest with the containerd store, the config's with the classic
    reference: str


def load(image: oci.Image, tag: str) -> Loaded:
    """Load an OCI layout into Docker under a tag, and return how to run exactly this image."""
    reported = _reported(tag)
    if reported not in (image.manifest, image.config):
        loading = ["sh", "-c", 'tar -C "$1" -cf - . | docker load', "sh", str(image.layout)]
        process.check("loading the image into Docker", loading, next_step="docker info", tool="docker")
        reported = _reported(tag)
    if reported is None or reported not in (image.manifest, image.config):
        raise errors.VettedError(
            f"Docker reports {reported} for {tag}, but the image that was built is {image.manifest}",
            cause="another clone loaded its image under the same tag at this moment",
            next_step=f"docker image rm {tag}, then run this again",
        )
    reference = f"{tag.rpartition(':')[0]}@{reported}" if reported == image.manifest else reported
    return Loaded(image.manifest, reported, reference)


def _reported(tag: str) -> str | None:
    result = process.run(["docker", "image", "inspect", "--format", "{{.Id}}", tag])
    return result.stdout.strip() if result.returncode == 0 else None


RUN_LABEL = "dev.vetted.run"
# NCCL's ranks talk through shared memory, of which a container has 64 MB if nobody asks for more.
GPUS = ("--gpus", "all", "--shm-size", "8g")


def run_label(project: Project, stack: str) -> str:
    """The label of a run's container: of this stack, and of this clone's state, where the stack's lock lies."""
    return f"{RUN_LABEL}={stack}-{sha256(str(project.state.resolve()).encode()).removeprefix('sha256:')[:12]}"


def remove_leftovers(project: Project, stack: str) -> None:
    """Remove containers that a killed run of this stack left behind in this clone; the caller holds the stack."""
    label = run_label(project, stack)
    listed = process.run(["docker", "ps", "--all", "--quiet", "--filter", f"label={label}"])
    if found := listed.stdout.split():
        process.run(["docker", "rm", "--force", *found])


# Capabilities of the supervisor in a container: it changes to the probes' user, hands directories over to it, reads its
# processes' memory accounts, ends them, and removes what they wrote.
SUPERVISOR = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "SYS_PTRACE")
PROBES = "1000:1000"  # the user of the images


def in_image(suite: Path, label: str, reference: str, python: str, device: str, memory_mib: int) -> list[str]:
    """The command that runs the suite inside an image with nothing that training does not need.

    The container ends with this process: its standard input closes, and the suite's runner exits on that.
    """
    return [
        "docker", "run", "--rm", "--interactive", "--pull", "never", "--label", label,
        "--network", "none",
        "--read-only",
        "--tmpfs", "/tmp:exec,mode=1777",  # exec: compiled helpers are loaded from there
        # The supervisor is root, with what it takes to start the probes as another user, watch, end and clean them up;
        # the probes have no privilege, and no way to the supervisor's memory and output.
        "--user", "0:0",
        "--cap-drop", "ALL",
        *(f"--cap-add={capability}" for capability in SUPERVISOR),
        "--security-opt", "no-new-privileges",
        "--pids-limit", "1024",
        "--memory", f"{memory_mib}m",
        *(GPUS if device == "cuda" else ()),
        "--mount", mount(suite, "/vetted"),
        "--env", "TMPDIR=/tmp",
        "--workdir", "/tmp",
        reference,
        # Debian's own interpreter: nothing of the stack's site-packages runs in the supervisor.
        *_supervisor(f"/usr/bin/python{python}", Path("/vetted")), "--python", "/opt/venv/bin/python", "--user", PROBES,
    ]  # fmt: skip


def mount(source: Path, target: str) -> str:
    """A read-only bind mount, as docker reads it: a line of CSV, so that a path may hold commas, colons and quotes."""
    quoted = str(source).replace('"', '""')
    return f'type=bind,"source={quoted}",target={target},readonly'


def on_host(root: Path, environment: Path) -> list[str]:
    """The command that runs the suite below `root` in an environment of this host; the tool's Python supervises."""
    return [*_supervisor(sys.executable, root), "--python", str(environment / "bin" / "python")]


def _supervisor(python: str, root: Path) -> list[str]:
    return [python, "-I", "-S", str(root / "smoke" / "__main__.py")]
