""".env: the image that compose.yaml runs, pinned by its digest. Whatever else a person keeps there stays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from builder.project import Project, write

IMAGE, STACK = "VETTED_IMAGE", "VETTED_STACK"


def path(project: Project) -> Path:
    return project.root / ".env"


def pin(project: Project, stack: str, image: str, scratch: Path) -> bool:
    """Write the image and its stack; whether anything changed."""
    target = path(project)
    # Any bytes that a person may have there come back as they were.
    before = target.read_bytes().decode(errors="surrogateescape") if target.is_file() else ""
    after = replaced(before, {IMAGE: image, STACK: stack})
    if after != before:
        write(target, after.encode(errors="surrogateescape"), scratch)
    return after != before


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with these variables set, each once: in its place, or at the end."""
    lines: list[str] = []
    left = dict(values)
    for line in text.splitlines(keepends=True):
        match = re.match(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", line)
        if match is None or match[1] not in values:
            lines.append(line)
        elif match[1] in left:
            lines.append(f"{match[1]}={left.pop(match[1])}\n")
    if lines and left and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join([*lines, *(f"{name}={value}\n" for name, value in left.items())])
