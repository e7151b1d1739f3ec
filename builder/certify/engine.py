"""Where a stack runs: `docker` (in its hardened image) or `host` (in a virtual environment of the same lock)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from builder.base import process
from builder.base.project import Project, sha256

RUN_LABEL = "dev.vetted.run"
# NCCL's ranks communicate through shared memory, of which a container has only 64 MB by default.
GPUS = ("--gpus", "all", "--shm-size", "8g")


def run_label(project: Project, stack: str) -> str:
    """The label of a run's container: the stack, and a digest of where this clone keeps its state."""
    return f"{RUN_LABEL}={stack}-{sha256(str(project.state.resolve()).encode()).removeprefix('sha256:')[:12]}"


def remove_leftovers(project: Project, stack: str) -> None:
    """Remove containers that a killed run of this stack in this clone left; the caller has the stack's lock."""
    label = run_label(project, stack)
    listing = process.run(["docker", "ps", "--all", "--quiet", "--filter", f"label={label}"])
    if containers := listing.stdout.split():
        process.run(["docker", "rm", "--force", *containers])


# Capabilities of the supervisor in a container: it changes to the probes' user, gives directories to that user, reads
# the memory use of its processes, ends them, and removes what they wrote.
SUPERVISOR = ("CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "SYS_PTRACE")
PROBES = "1000:1000"  # the user of the images


def in_image(suite: Path, label: str, reference: str, python: str, device: str, memory_mib: int) -> list[str]:
    """The command that runs the suite inside an image, with no more rights than training needs.

    The container ends with this process: its standard input closes, and the suite's runner exits on that.
    """
    return [
        "docker", "run", "--rm", "--interactive", "--pull", "never", "--label", label,
        "--network", "none",
        "--read-only",
        "--tmpfs", "/tmp:exec,mode=1777",  # exec: compiled helpers are loaded from there
        # The supervisor is root, with the capabilities to start the probes as another user, to watch and end them, and
        # to clean up. The probes have no privileges, and no access to the supervisor's memory and output.
        "--user", "0:0",
        "--cap-drop", "ALL",
        *(f"--cap-add={capability}" for capability in SUPERVISOR),
        "--security-opt", "no-new-privileges",
        "--pids-limit", "1024",
        "--memory", f"{memory_mib}m",
        *(_gpus() if device == "cuda" else ()),
        "--mount", mount(suite, "/vetted"),
        "--env", "TMPDIR=/tmp",
        "--workdir", "/tmp",
        reference,
        *inside(python),
    ]  # fmt: skip


def inside(python: str) -> list[str]:
    """The command of the suite in an image, where it lies at /vetted."""
    # Debian's own interpreter: no code of the stack's site-packages runs in the supervisor.
    supervisor = _supervisor(f"/usr/bin/python{python}", Path("/vetted"))
    return [*supervisor, "--python", "/opt/venv/bin/python", "--user", PROBES]


def _gpus() -> list[str]:
    """All GPUs, and the variable with which the caller has chosen some of them: Docker takes no list from it."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return [*GPUS, "--env", "CUDA_DEVICE_ORDER=PCI_BUS_ID"] + (
        [] if chosen is None else ["--env", f"CUDA_VISIBLE_DEVICES={chosen}"]
    )


def mount(source: Path, target: str) -> str:
    """A read-only bind mount for docker, a line of CSV: a path may contain commas, colons and quotes."""
    quoted = str(source).replace('"', '""')
    return f'type=bind,"source={quoted}",target={target},readonly'


def on_host(root: Path, environment: Path) -> list[str]:
    """The command that runs the suite below `root` in an environment of this host; the tool's Python supervises."""
    return [*_supervisor(sys.executable, root), "--python", str(environment / "bin" / "python")]


def _supervisor(python: str, root: Path) -> list[str]:
    return [python, "-I", "-S", str(root / "smoke" / "__main__.py")]
