"""Environments that a benchmark makes of requirements, and what probes say of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import canonicalize_name

from builder.base import errors, machine, sources
from builder.base.project import Project
from builder.certify import hostenv, suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request
from builder.console.progress import Line
from builder.lock import audit
from builder.lock.lockfile import Lock

TORCH = "2.13.0+cpu"
PYTHON = "3.11"
# Releases of TRL, and the day up to which everything else was published.
DATES = {
    "0.16.1": "2025-04-06",
    "0.17.0": "2025-04-26",
    "0.18.2": "2025-06-17",
    "0.19.1": "2025-07-10",
    "0.21.0": "2025-08-07",
    "0.23.1": "2025-10-04",
    "0.25.1": "2025-11-14",
    "0.27.2": "2026-02-05",
    "0.29.0": "2026-02-27",
    "1.2.0": "2026-04-19",
    "1.4.0": "2026-05-10",
    "1.6.0": "2026-06-13",
    "1.9.0": "2026-07-24",
    "1.12.0": "2026-08-28",
    "1.14.2": "2026-10-08",
}


def locked(home: Project, lock: Lock, scratch: Path) -> Path:
    """The environment of a lock, with progress on the terminal. Raises VettedError if the lock is stale."""
    if findings := audit.stale(lock):
        raise errors.VettedError(findings[0].what, next_step=findings[0].fix)
    with Line("environment") as line:
        return hostenv.prepare(home, lock, scratch, line.say)


def make(environment: Path, *arguments: str, **env: str) -> None:
    """Make a virtual environment with torch for the CPU. `arguments`: requirements and options of `uv pip install`."""
    uv, env = machine.uv_binary(), {**os.environ, **machine.uv_environment(TORCH), **env}
    python = str(environment / "bin" / "python")
    for argv in (
        ["venv", "--quiet", "--no-project", "--python", PYTHON, str(environment)],
        ["pip", "install", "--quiet", "--python", python, f"torch=={TORCH}", *arguments],
    ):
        subprocess.run([uv, *argv], env=env, check=True)


@contextmanager
def release(trl: str, scratch: Path, *more: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """A release as it was installed on its day, and its versions; it lies in the scratch folder and goes with it.

    `more`: other packages that are installed with it.
    """
    environment = scratch / "environment"
    # A list of torch's own wheels has no dates.
    when = ("--exclude-newer", DATES[trl], "--exclude-newer-package", "torch=false")
    make(environment, *when, f"trl=={trl}", "peft", "jinja2", "rich", "setuptools", *more)
    argv = [machine.uv_binary(), "pip", "list", "--format", "json", "--python", str(environment / "bin" / "python")]
    listed = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    yield environment, {canonicalize_name(row["name"]): row["version"] for row in listed}


def probed(
    versions: dict[str, str], probes: Sequence[str], environment: Path, home: Project, work: Path
) -> list[ProbeResult]:
    """What probes say of an environment."""
    work.mkdir()
    sources.copy(home.smoke, work / "suite")
    request = Request("cpu", versions, tuple(probes))
    answer = suite.run(suite.on_host(environment, work / "suite", work / "run"), request, work, lambda _: None)
    return list(answer.results)
