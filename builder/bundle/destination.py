"""What an earlier `vetted bundle` left in a folder: it is replaced, and a folder with anything else is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from builder.base import errors, ownership
from builder.base.project import Project
from builder.bundle.unbundle.manifest import MANIFEST, PART_NAME
from builder.intent import stack

ENTRY = "run.pyz"
NEXT = "choose another --output"
UNFINISHED = re.compile(rf"\.({PART_NAME.pattern})\.partial")


def refuse_other(project: Project, output: Path) -> None:
    """Raise StorageError when a folder contains anything that an earlier `vetted bundle` did not write."""
    if not output.is_dir():
        if output.exists() or output.is_symlink():
            raise errors.StorageError(f"{output} exists and is not a folder", next_step=NEXT)
        return
    ownership.refuse(output / MANIFEST, lambda content: bool(_listed(content)), NEXT)
    ownership.refuse(output / ENTRY, lambda content: b"unbundle/run.py" in content, NEXT)
    ours = {path.name for path in (*parts(project, output), *unfinished(project, output))} | {MANIFEST, ENTRY}
    if strange := sorted(path.name for path in output.iterdir() if path.name not in ours or path.is_symlink()):
        raise errors.StorageError(f"{output} holds something else than a bundle: {strange[0]}", next_step=NEXT)


def parts(project: Project, output: Path) -> list[Path]:
    """The parts there: of a stack that we know, as they are also without a manifest, or on the list in it."""
    try:
        listed = _listed((output / MANIFEST).read_bytes())
    except OSError:
        listed = frozenset()
    known = set(stack.names(project))
    return [
        path
        for path in sorted(output.iterdir())
        if PART_NAME.fullmatch(path.name) and (path.name in listed or _stack(path.name) in known)
    ]


def unfinished(project: Project, output: Path) -> Iterator[Path]:
    """Parts that an interrupted run began."""
    known = set(stack.names(project))
    for path in sorted(output.iterdir()):
        match = UNFINISHED.fullmatch(path.name)
        if match and _stack(match[1]) in known:
            yield path


def _stack(part: str) -> str:
    return part.rpartition(".part")[0]


def _listed(content: bytes) -> Set[str]:
    """The names of the parts in a manifest; none for what is no manifest."""
    try:
        document: Any = json.loads(content)
        return frozenset(str(part["name"]) for part in document["parts"] if "format" in document)
    except (ValueError, RecursionError, KeyError, TypeError):
        return frozenset()
