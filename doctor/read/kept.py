"""What was concluded about a set of installed sources, kept for the next look at the same: by the hashes of RECORDs."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from doctor.read import files

FORMAT = 1  # raise it when the check concludes otherwise from the same sources
LARGEST = 4 * 1024 * 1024


class Import(NamedTuple):
    """An import that is sure to fail where its place is reached, and the way from what a run imports to that place."""

    owner: str  # the distribution that imports
    target: str  # the distribution that lacks the name
    module: str
    name: str
    caller: str
    function: str
    line: int
    eager: list[str]


KINDS = (str, str, str, str, str, str, int, list)


def key(digests: Mapping[str, str]) -> str:
    """What identifies the sources of these distributions; "" where one was edited. What parses them matters, too."""
    if not digests or not all(digests.values()):
        return ""
    content = json.dumps([FORMAT, sys.version_info[:2], sorted(digests.items())])
    return hashlib.sha256(content.encode()).hexdigest()


def load(folder: Path, name: str) -> list[Import] | None:
    """The imports that are kept under a key; None for none, or for a file of another form."""
    try:
        content, more = files.head(folder / f"{name}.uses.json", LARGEST)
        rows = json.loads(content) if not more else None
    except (OSError, ValueError, RecursionError):
        return None
    return [Import(*row) for row in rows] if isinstance(rows, list) and all(map(_is_import, rows)) else None


def _is_import(row: Any) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(KINDS)
        and all(map(isinstance, row, KINDS))
        and all(isinstance(place, str) for place in row[-1])
    )


def save(folder: Path, name: str, imports: list[Import]) -> None:
    """Keep them; a cache that cannot be written is none."""
    path = folder / f"{name}.uses.json"
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(imports, separators=(",", ":")), encoding="utf-8")
        part.replace(path)
    except OSError:
        pass
