"""The doctor's data: the project's advisories and stacks as one file, which `vetted render` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from builder.base.project import Project
from builder.certify import standing
from builder.intent import advisory, stack
from builder.intent.advisory import Advisory
from builder.lock import lockfile
from builder.lock.lockfile import Lock

KEPT = ("id", "summary", "severity", "symptoms", "hints", "probes", "affected", "fix", "evidence", "references")


def path(project: Project) -> Path:
    """Where the file is."""
    return project.root / "doctor" / "know" / "data.json"


def text(project: Project) -> str:
    """The content of the file; its date is that of the newest advisory. Raises BadInputError for a broken source."""
    advisories = [_advisory(project, entry) for entry in advisory.load_all(project) if not entry.withdrawn]
    locks = [lockfile.load(project, name) for name in stack.shipped(project)]
    stacks = [_stack(lock, standing.certified_on(project, lock)) for lock in locks]
    date = max((entry.published.isoformat() for entry in advisory.load_all(project)), default="")
    content = {"date": date, "advisories": advisories, "stacks": stacks}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _advisory(project: Project, entry: Advisory) -> dict[str, Any]:
    kept = entry.model_dump(mode="json", include=set(KEPT), exclude_none=True, exclude_defaults=True)
    reasons = {stack.load_control(project, name).expect.reason for name in entry.controls}
    return kept | ({"reasons": sorted(reasons)} if reasons else {})


def _stack(lock: Lock, certified: list[str]) -> dict[str, Any]:
    return {
        "name": lock.name,
        "title": lock.stack.title,
        "device": lock.stack.device,
        "python": lock.stack.python,
        "cuda": _cuda(lock),
        "certified": certified,
        "patches": [patch.file.removeprefix("images/patches/") for patch in lock.stack.patch],
        "overrides": [lockfile.normalise(Requirement(override.requirement).name) for override in lock.stack.override],
        "versions": lock.versions,
        "hashes": {entry.name: entry.sha256 for entry in lock.python},
    }


def _cuda(lock: Lock) -> str:
    """The CUDA of the libraries in a lock, such as 12.8; empty for a lock without."""
    for name in ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"):
        if name in lock.versions:
            return ".".join(lock.versions[name].split(".")[:2])
    return ""
