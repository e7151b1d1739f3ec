"""The matrix of stacks: their versions, and where each is certified."""

from __future__ import annotations

from builder.base.project import Project
from builder.certify import standing
from builder.intent import stack
from builder.intent.platform import PLATFORMS
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import cells, images
from builder.pages.cells import Markdown

COLUMNS = ("trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes")


def versions(lock: Lock) -> dict[str, str]:
    return {
        column: next((lock.versions[n] for n in (column, f"{column}-cpu") if n in lock.versions), "–")
        for column in COLUMNS
    }


def other_platforms(project: Project, name: str) -> dict[str, str]:
    """Every platform of a stack but amd64, and how far it came. None is certified: the suite runs on amd64."""
    others = stack.load(project, name).platforms[1:]
    weighed = images.measured(project) if others else {}
    locks = [lockfile.load(project, name, PLATFORMS[platform]) for platform in others]
    return {lock.platform.name: f"{'built' if lock.image in weighed else 'locked'}, not certified" for lock in locks}


def matrix(project: Project) -> str:
    rows = []
    for name in stack.shipped(project):
        lock = lockfile.load(project, name)
        places = standing.certified_on(project, lock) or [Markdown("**not certified**")]
        places += standing.earlier_on(project, lock)
        others = [f"{platform}: {state}" for platform, state in other_platforms(project, name).items()]
        rows.append([cells.code(name), *versions(lock).values(), cells.joined([*places, *others], "<br>")])
    return cells.table(["stack", *COLUMNS, "certified on"], rows)
