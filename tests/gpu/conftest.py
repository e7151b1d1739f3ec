"""The CUDA stack's own wheels, installed once a run, and the fake driver for them."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from builder.base import project
from builder.certify import hostenv
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from tests import parts
from tests.conftest import ROOT
from tests.gpu import stub
from tests.gpu.stub import Machine

STACK = "trl1.16-torch2.11-cu130"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.engine)


@dataclass(frozen=True)
class CudaStack:
    """The stack's environment, and the folder of the fake driver that was made for it."""

    lock: Lock
    environment: Path
    libraries: Path


@pytest.fixture(scope="session", autouse=True)
def namespaces() -> None:
    parts.root()
    parts.programs("unshare", "mount")


@pytest.fixture(scope="session")
def cuda_stack(shared: Path) -> CudaStack:
    """Prepared once for all workers of a run."""
    root, home = shared / "cuda", project.Project(ROOT)
    lock = lockfile.load(home, STACK)
    with FileLock(root.with_suffix(".lock")), pytest.MonkeyPatch.context() as patched:
        patched.setenv("VETTED_STATE", str(root / "state"))
        environment = hostenv.path(home, lock)
        if not environment.exists():
            with home.holding(STACK) as scratch:
                hostenv.prepare(home, lock, scratch, lambda _: None, keep=False)
            stub.libraries(root / "driver", environment / lock.site_packages)
    return CudaStack(lock, environment, root / "driver")


@dataclass(frozen=True)
class Run:
    """A run of the suite: what it reported."""

    events: list[dict[str, Any]]

    @property
    def ready(self) -> dict[str, Any]:
        (event,) = [event for event in self.events if event["event"] == "ready"]
        return event

    @property
    def ends(self) -> dict[str, dict[str, Any]]:
        """The end of each probe, by its name."""
        return {event["probe"]: event for event in self.events if event["event"] == "end"}


def run(stack: CudaStack, machine: Machine, probes: list[str] | None = None, folder: Path | None = None) -> Run:
    """Run the suite for CUDA on a machine. `folder`: that of other probes."""
    suite = [sys.executable, "-m", "smoke", *(["--probes", str(folder)] if folder else [])]
    argv = machine.command([*suite, "--python", str(stack.environment / "bin" / "python")])
    request = json.dumps({"device": "cuda", "probes": probes, "distributions": stack.lock.versions})
    with subprocess.Popen(
        argv, cwd=ROOT, env=machine.environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(request + "\n")
        child.stdin.flush()  # and stays open: the runner ends when it is closed
        events = [json.loads(line) for line in child.stdout]
    assert child.returncode == 0
    return Run(events)
