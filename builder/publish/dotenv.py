""".env: the image that compose.yaml runs, pinned by its digest, its user and its limits. Other lines stay."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from builder.base import reading
from builder.base.project import Project, write
from builder.intent.stack import Stack

IMAGE, STACK, USER, FILES = "VETTED_IMAGE", "VETTED_STACK", "VETTED_USER", "COMPOSE_FILE"
CERTIFICATES = "VETTED_CERTIFICATES"
MEMORY, PIDS = "VETTED_MEMORY", "VETTED_PIDS"
BASE, GPUS = "compose.yaml", "compose.gpu.yaml"
NOBODY_IN_PARTICULAR = 1000  # the user of the images
MIB = 1 << 20
SPARED = 2048  # MiB for the host, or a quarter of its memory where that is less
# Most processes and threads of a run belong to pools with one for each core.
PIDS_LEAST, PIDS_PER_CORE = 4096, 128


def path(project: Project) -> Path:
    return project.root / ".env"


def pin(project: Project, stack: Stack, name: str, image: str, certificates: Path, scratch: Path) -> bool:
    """Write the image, its stack, record, user, limits and compose files; returns whether anything changed."""
    certificates.mkdir(parents=True, exist_ok=True)
    target = path(project)
    # Foreign bytes in the file are kept as they are.
    before = reading.content(target, ".env").decode(errors="surrogateescape") if target.exists() else ""
    values = {
        IMAGE: image,
        STACK: name,
        CERTIFICATES: _value(project, certificates),
        USER: owner(project),
        FILES: files(before, stack.device),
        **{name: value for name, value in limits().items() if not _is_set(before, name)},
    }
    after = replaced(before, values)
    if after != before:
        write(target, after.encode(errors="surrogateescape"), scratch)
    return after != before


def limits() -> dict[str, str]:
    """The memory and processes that a container may use on this machine, unless .env sets other limits."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    pids = max(PIDS_LEAST, PIDS_PER_CORE * (os.cpu_count() or 1))
    return {MEMORY: f"{memory(total)}m", PIDS: str(pids)}


def memory(total: int) -> int:
    """The MiB for a container on a host with `total` MiB."""
    return max(total - SPARED, total * 3 // 4)


def _is_set(text: str, name: str) -> bool:
    return re.search(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*=[ \t]*\S", text, re.MULTILINE) is not None


def _value(project: Project, folder: Path) -> str:
    """A folder as compose reads it: relative to compose.yaml, or absolute; quoted where it must be."""
    text = f"./{folder.relative_to(project.root)}" if folder.is_relative_to(project.root) else str(folder)
    if re.fullmatch(r"[\w./+@-]+", text):
        return text
    return "'" + text.replace("'", "\\'") + "'"  # compose reads any other backslash literally


def owner(project: Project) -> str:
    """The user of the container as uid:gid: the owner of runs/, so that they own the results; never root."""
    runs = project.root / "runs"
    runs.mkdir(exist_ok=True)
    status = runs.stat()
    if status.st_uid != 0:
        return f"{status.st_uid}:{status.st_gid}"
    if os.geteuid() == 0:
        os.chown(runs, NOBODY_IN_PARTICULAR, NOBODY_IN_PARTICULAR)
    return f"{NOBODY_IN_PARTICULAR}:{NOBODY_IN_PARTICULAR}"


def files(text: str, device: str) -> str:
    """The compose files: those that .env names, with the one for GPUs or without it."""
    values = re.findall(rf"^\s*(?:export\s+)?{FILES}\s*=(.*)$", text, re.MULTILINE)
    files = [file for file in (values[-1].strip() if values else BASE).split(":") if file and file != GPUS]
    if device == "cuda":
        files.insert(files.index(BASE) + 1 if BASE in files else len(files), GPUS)
    return ":".join(files)


def replaced(text: str, values: Mapping[str, str]) -> str:
    """The text with these variables set, each once: where it is already, or at the end."""
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
