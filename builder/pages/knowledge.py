"""What the doctor knows of this project: advisories and stacks as one file, generated, committed, checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from builder.base.project import Project
from builder.certify import standing
from builder.intent import advisory, stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock

KEPT = ("id", "summary", "severity", "symptoms", "hints", "affected", "fix", "evidence", "references")


def path(project: Project) -> Path:
    return project.root / "doctor" / "know" / "data.json"


def text(project: Project) -> str:
    """The file's content. Raises BadInputError for a broken advisory, stack or lock."""
    known = [
        one.model_dump(mode="json", include=set(KEPT), exclude_none=True, exclude_defaults=True)
        for one in advisory.load_all(project)
        if not one.withdrawn
    ]
    locks = [lockfile.load(project, name) for name in stack.shipped(project)]
    stacks = [_stack(lock, standing.certified_on(project, lock)) for lock in locks]
    return json.dumps({"advisories": known, "stacks": stacks}, indent=1, ensure_ascii=False) + "\n"


def _stack(lock: Lock, certified: list[str]) -> dict[str, Any]:
    return {
        "name": lock.name,
        "title": lock.stack.title,
        "device": lock.stack.device,
        "python": lock.stack.python,
        "cuda": _cuda(lock),
        "certified": certified,
        "patches": [patch.file.removeprefix("images/patches/") for patch in lock.stack.patch],
        "overrides": [lockfile.normalise(Requirement(one.requirement).name) for one in lock.stack.override],
        "versions": lock.versions,
        "hashes": {entry.name: entry.sha256 for entry in lock.python},
    }


def _cuda(lock: Lock) -> str:
    """The CUDA of a stack's own libraries; empty for one without."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in lock.versions:
            return ".".join(lock.versions[name].split(".")[:2])
    return ""
