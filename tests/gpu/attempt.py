"""An attempt to certify on a machine that does not exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from builder.base import sources
from builder.base.project import Project
from builder.certify import certify
from builder.certify.certificate import Statement
from builder.certify.certify import Options
from builder.certify.transcript import Event
from builder.lock.lockfile import Lock
from tests.gpu import machines
from tests.gpu.machines import Fake

MACHINE = "machine"  # in the folder of an attempt


def certify_on(
    fake: Fake, project: Project, lock: Lock, environment: Path, libraries: Path, folder: Path,
    on_event: Callable[[Event], None] = lambda _: None,
) -> Statement:  # fmt: skip
    """Run the suite of a lock, whose environment is prepared, on a machine with a driver. `folder` is a new one."""
    root, scratch = folder / "suite", folder / "scratch"
    scratch.mkdir(parents=True)
    identity = sources.copy(project.smoke, root)
    subject = certify.on_host(lock, environment, root, scratch)
    place = fake.machine(folder / MACHINE, libraries)
    # The suite's own variables, and for the GPUs those of the machine that is not there.
    variables = {**place.environment, **subject.runner.environment, "LD_LIBRARY_PATH": str(place.folder)}
    runner = replace(subject.runner, command=place.command(subject.runner.command), environment=variables)
    with machines.on(fake, folder / "bin"):
        return certify.examine(
            lock, Options("cuda", "host", fake.probes), replace(subject, runner=runner), identity, scratch,
            on_event,
        )  # fmt: skip
