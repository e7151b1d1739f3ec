"""A reproducer: a folder that shows the fault on any machine with uv, without anything of this project installed.

It has the two locks that differ in the culprits alone, the suite if one of its probes was asked, and the program
scripts/reproduce.py with its data, reproduce.json.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TypedDict

from builder.base import sources
from builder.base.project import Project, remove, write
from builder.bisect.packages import BreakingChanges
from builder.bisect.question import Question
from builder.image import patches
from builder.lock import lockfile
from builder.lock.solver import torch_backend

PROGRAM = Path(__file__).parent / "scripts" / "reproduce.py"
DATA = "reproduce.json"


class Data(TypedDict):
    """What the program reads. Either `probe` or `command` is empty; `patches` are file names, by side, in order."""

    title: str
    python: str
    device: str
    torch_backend: str | None
    probe: str
    command: list[str]
    time_limit_s: float
    patches: dict[str, list[str]]


def make(project: Project, result: BreakingChanges, question: Question, target: Path, scratch: Path) -> Path:
    """Write the reproducer's folder anew; returns the path of its program."""
    folder = scratch / "reproducer"
    remove(folder)
    folder.mkdir(parents=True)
    build = {entry.name: entry for lock in (result.good, result.bad) for entry in lock.build}
    files = {
        "good.txt": lockfile.format_python(result.good.python),
        "bad.txt": lockfile.format_python(result.bad.python),
        "build.txt": lockfile.format_python(build[name] for name in sorted(build)),
        DATA: json.dumps(_data(result, question), indent=2) + "\n",
    }
    for name, text in files.items():
        write(folder / name, text, scratch)
    shutil.copyfile(PROGRAM, folder / PROGRAM.name)
    if patch_files := (*result.good.patches, *result.bad.patches):
        shutil.copyfile(patches.__file__, folder / "patches.py")
        for path in patch_files:
            shutil.copyfile(path, folder / _name(path))
    if question.probe:
        sources.copy(project.smoke, folder)
    remove(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target / PROGRAM.name


def _name(patch: Path) -> str:
    """images/patches/vllm/0.7.2/0001-x.patch -> vllm-0.7.2-0001-x.patch"""
    return "-".join(patch.parts[-3:])


def _data(result: BreakingChanges, question: Question) -> Data:
    return {
        "title": f"{question.name}: passes with good.txt, fails with bad.txt. What differs: {_words(result)}.",
        "python": result.good.stack.python,
        "device": result.bad.stack.device,
        "torch_backend": torch_backend(result.bad.stack),
        "probe": question.probe,
        "command": list(question.command),
        "time_limit_s": question.time_limit_s,
        "patches": {
            side: [_name(path) for path in lock.patches] for side, lock in (("good", result.good), ("bad", result.bad))
        },
    }


def _words(result: BreakingChanges) -> str:
    """The culprits in one line, and the dependencies that moved along."""
    return ", ".join([*map(str, result.culprits), *(f"{change} (required)" for change in result.dependencies)])
