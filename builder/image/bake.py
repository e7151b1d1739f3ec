"""The images of several stacks in one build: a file for `docker buildx bake`, here or on a remote BuildKit."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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


def prepare(
    project: Project, stacks: Sequence[Lock], scratch: Path, report: Reporter, cache: str | None = None
) -> Path:
    """Make the contexts of all stacks and the bake file of their builds, and return the file.

    `cache`: a repository (HOST/PATH) to which each build writes its layers, and from which it takes those of all.
    """
    for lock in stacks:
        build.refuse_stale(project, lock)
    home = folder(project)
    shutil.rmtree(home, ignore_errors=True)
    targets = {}
    for lock in stacks:
        own = home / lock.name
        own.mkdir(parents=True)
        targets[name(lock)] = dataclasses.asdict(target.make(project, lock, own, report, fresh=False))
        if cache:
            targets[name(lock)] |= {
                "cache-from": [target.cached(cache, each) for each in stacks],
                "cache-to": [target.caching(cache, lock)],
            }
    document = {"group": {"default": {"targets": list(targets)}}, "target": targets}
    path = home / FILE
    write(path, json.dumps(document, indent=2) + "\n", scratch)
    return path


def name(lock: Lock) -> str:
    """The name of a stack's target, which must not contain a dot."""
    return lock.name.replace(".", "_")


def run(
    project: Project, stacks: Sequence[Lock], path: Path, scratch: Path, report: Reporter,
    builders: Sequence[str] = (),
) -> dict[str, Built]:  # fmt: skip
    """Build all targets of a bake file. Each image is identical to that of `vetted build`, and is kept like it.

    `builders`: BuildKits that share the stacks and build side by side: builders of buildx, or contexts of docker. None
    is the current one.
    """
    chosen: Sequence[str | None] = list(dict.fromkeys(builders)) or [None]
    shares = {builder: stacks[number :: len(chosen)] for number, builder in enumerate(chosen)}
    engines = {builder: daemon.docker(builder) for builder in chosen}

    def build_(builder: str | None) -> None:
        if locks := shares[builder]:
            docker_options, options = daemon.chosen(builder)
            bake_ = ["docker", *docker_options, "buildx", "bake", *options, "--progress=rawjson", "--file", str(path)]
            buildx.run("the images", [*bake_, *map(name, locks)], report, env=ENVIRONMENT)

    with ThreadPoolExecutor(len(chosen)) as pool:
        list(pool.map(build_, chosen))
    images = {
        lock.name: build.keep(project, lock, folder(project) / lock.name / target.LAYOUT, engines[builder], scratch)
        for builder, locks in shares.items()
        for lock in locks
    }
    shutil.rmtree(folder(project))
    return {lock.name: images[lock.name] for lock in stacks}
