"""The advisories of a stack that depend on the options of a run, for the check of `vetted train`.

An image carries none: a new advisory would make another image of it. So `vetted use` writes them beside the verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from builder.base import errors
from builder.base.project import Project
from builder.base.project import write as write_file
from builder.intent import advisory as advisories
from builder.intent import stack
from builder.intent.advisory import Advisory
from builder.lock.lockfile import Lock

FILE = "advisories.json"  # where runtime/ looks for it

CRASHES = ("crash", "resolve")
HARM = {
    "silent-wrong": "such a run trains wrongly, and no error says so",
    "hang": "such runs were reported to hang",
    "crash": "such runs were reported to fail",
    "waste": "such a run takes more than it should",
    "resolve": "such runs were reported to fail",
}


def write(project: Project, lock: Lock, target: Path, scratch: Path) -> None:
    """Write them to the folder `target`."""
    document = {"stack": lock.name, "lock": lock.digest, "advisories": list(of_stack(project, lock))}
    write_file(target / FILE, json.dumps(document, indent=2, ensure_ascii=False) + "\n", scratch)


def of_stack(project: Project, lock: Lock) -> Iterator[dict[str, Any]]:
    """One entry for each combination of a stack's packages that a program can decide; a note is for a person."""
    for advisory in advisories.load_all(project):
        if _patched(project, advisory, lock):
            continue
        for combination in [] if advisory.withdrawn else advisory.combinations(lock.versions):
            if combination.context is None or combination.context.note is not None:
                continue
            # A run is refused only where we saw it fail.
            fatal = advisory.severity in CRASHES and advisory.evidence.kind == "executed"
            yield {
                "id": advisory.id,
                "level": "stop" if fatal else "advice",
                # What goes wrong in TRL, goes wrong in GRPO: other trainers were not looked at.
                "trainers": ["grpo"] if "trl" in combination.packages else None,
                "summary": advisory.summary,
                "harm": "such a run fails" if fatal else HARM[advisory.severity],
                "remedy": _remedy(advisory),
                "when": str(combination.context),
                "conditions": combination.context.model_dump(mode="json", exclude_defaults=True),
            }


def _remedy(advisory: Advisory) -> str:
    """What to do with this image, before what needs another one."""
    settings = [fix.note for fix in advisory.fix if fix.note and not fix.packages]
    packages = [f"a stack with {fix}" for fix in advisory.fix if fix.packages]
    return ", or ".join([*settings, *packages])


def _patched(project: Project, advisory: Advisory, lock: Lock) -> bool:
    """Whether the stack carries the patches that make a control of this advisory good."""
    carried = {patch.file for patch in lock.stack.patch}
    for name in advisory.controls if carried else ():
        try:
            patches = stack.load_control(project, name).expect.patch
        except errors.BadInputError:  # a project with stacks of its own need not have the controls
            continue
        if patches and carried.issuperset(patches):
            return True
    return False
