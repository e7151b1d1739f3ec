"""Parts of a machine that a test asks for. One that is not there skips the test and says how to get it.

With VETTED_REQUIRE_ENGINE set, as in CI, a missing part fails the test instead: there everything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builder.base import errors
from builder.image import daemon

INSTALL = "sudo scripts/install-engine"


def need(part: str, present: bool, how: str = INSTALL, *, in_ci: bool = True) -> None:
    """Skip the test unless the part is present. In CI, fail it; `in_ci=False`: CI cannot have the part either."""
    if present:
        return
    if in_ci and os.environ.get("VETTED_REQUIRE_ENGINE"):
        pytest.fail(f"{part} is missing; {how}")
    pytest.skip(f"{part} is missing; {how}")


def docker() -> daemon.Docker:
    """A Docker engine that answers."""
    try:
        return daemon.docker()
    except errors.MissingToolError as error:
        if os.environ.get("VETTED_REQUIRE_ENGINE"):
            raise
        pytest.skip(f"{error.what}; {INSTALL}")


def plugin(name: str) -> None:
    """A plugin of the docker client: compose or buildx. No daemon is needed."""
    need("the docker client", shutil.which("docker") is not None)
    version = subprocess.run(["docker", name, "version"], capture_output=True, check=False)
    need(f"docker's {name} plugin", version.returncode == 0)


def programs(*names: str, how: str = INSTALL) -> None:
    """Programs on PATH."""
    missing = [name for name in names if shutil.which(name) is None]
    need(", ".join(missing), not missing, how)


def git() -> str:
    """Git, which makes the clone, and is not on every machine that has a copy of it."""
    programs("git", how="sudo apt-get install git")
    return "git"


def root() -> None:
    """Root, which mounting needs."""
    need("root", os.geteuid() == 0, "run the tests with sudo")


def cpu(flag: str) -> None:
    """A CPU with these instructions, by the name that Linux gives them."""
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    present = flags is not None and flag in flags[1].split()
    need(f"{flag} of the CPU", present, "run the test on a CPU that has it", in_ci=False)


def slurm() -> None:
    """The daemons of a Slurm cluster, and the rights to start them."""
    root()
    daemons = ("slurmctld", "slurmd", "munged", "srun")
    programs(*daemons, how="apt-get install --no-install-recommends slurmctld slurmd slurm-client munge")
