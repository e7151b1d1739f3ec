"""The images of several stacks in one build: a file for `docker buildx bake`, here or on a remote BuildKit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from builder.base.project import Project, write
from builder.image import build, buildx, daemon, target
from builder.image.build import Built
from builder.image.buildx import Reporter
from builder.lock.lockfile import Lock

FILE = "docker-bake.json"
# From 0.20 on, buildx asks before a bake file reads or writes outside the current folder; nobody can answer here.
ENVIRONMENT = {"BUILDX_BAKE_ENTITLEMENTS_FS": "0"}


def folder(project: Project) -> Path:
    """The folder of the bake file and of everything that it refers to."""
    return project.state / "bake"


def prepare(project: Project, stacks: Sequence[Lock], scratch: Path, report: Reporter) -> Path:
    """Make the contexts of all stacks and the bake file of their builds, and return the file."""
    for lock in stacks:
        build.refuse_stale(project, lock)
    home = folder(project)
    shutil.rmtree(home, ignore_errors=True)
    targets = {}
    for lock in stacks:
        own = home / lock.name
        own.mkdir(parents=True)
        targets[name(lock)] = dataclasses.asdict(target.make(project, lock, own, report, fresh=False))
    document = {"group": {"default": {"targets": list(targets)}}, "target": targets}
    path = home / FILE
    write(path, json.dumps(document, indent=2) + "\n", scratch)
    return path


def name(lock: Lock) -> str:
    """The name of a stack's target, which must not contain a dot."""
    return lock.name.replace(".", "_")


def run(project: Project, stacks: Sequence[Lock], path: Path, scratch: Path, report: Reporter) -> dict[str, Built]:
    """Build all targets of a bake file. Each image is identical to that of `vetted build`, and is kept like it."""
    docker = daemon.docker()
    argv = ["docker", "buildx", "bake", "--progress=rawjson", "--file", str(path)]
    buildx.run("the images", argv, report, env=ENVIRONMENT)
    images = {
        lock.name: build.keep(project, lock, folder(project) / lock.name / target.LAYOUT, docker, scratch)
        for lock in stacks
    }
    shutil.rmtree(folder(project))
    return images
