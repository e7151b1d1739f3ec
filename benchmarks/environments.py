"""Environments that a benchmark makes of requirements, and what probes say of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from builder.base import machine, sources
from builder.base.project import Project
from builder.certify import suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request

TORCH = "2.13.0+cpu"
PYTHON = "3.11"


def make(environment: Path, *arguments: str, **env: str) -> None:
    """Make a virtual environment with torch for the CPU. `arguments`: requirements and options of `uv pip install`."""
    uv, env = machine.uv_binary(), {**os.environ, **machine.uv_environment(TORCH), **env}
    python = str(environment / "bin" / "python")
    for argv in (
        ["venv", "--quiet", "--no-project", "--python", PYTHON, str(environment)],
        ["pip", "install", "--quiet", "--python", python, f"torch=={TORCH}", *arguments],
    ):
        subprocess.run([uv, *argv], env=env, check=True)


def probed(
    versions: dict[str, str], probes: Sequence[str], environment: Path, home: Project, work: Path
) -> list[ProbeResult]:
    """What probes say of an environment."""
    work.mkdir()
    sources.copy(home.smoke, work / "suite")
    request = Request("cpu", versions, tuple(probes))
    answer = suite.run(suite.on_host(environment, work / "suite", work / "run"), request, work, lambda _: None)
    return list(answer.results)
