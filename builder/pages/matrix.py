"""The matrix of stacks: their versions, and where each is certified."""

from __future__ import annotations

from builder.base.project import Project
from builder.certify import standing
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import cells
from builder.pages.cells import Markdown

COLUMNS = ("trl", "vllm", "torch", "transformers", "deepspeed", "bitsandbytes")


def versions(lock: Lock) -> dict[str, str]:
    return {
        column: next((lock.versions[n] for n in (column, f"{column}-cpu") if n in lock.versions), "–")
        for column in COLUMNS
    }


def matrix(project: Project) -> str:
    rows = []
    for name in stack.shipped(project):
        lock = lockfile.load(project, name)
        places = cells.joined(standing.certified_on(project, lock), "<br>") or Markdown("**not certified**")
        rows.append([cells.code(name), *versions(lock).values(), places])
    return cells.table(["stack", *COLUMNS, "certified on"], rows)
