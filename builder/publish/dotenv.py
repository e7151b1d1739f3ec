""".env: the image that compose.yaml runs, pinned by its digest, and as whom. What else a person keeps there stays."""

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
SPARED = 2048  # MiB that the host keeps, or a quarter of its memory where that is less
# Of the processes and threads of a run most belong to pools with one for each core.
PIDS_LEAST, PIDS_PER_CORE = 4096, 128


def path(project: Project) -> Path:
    return project.root / ".env"


def pin(project: Project, held: Stack, name: str, image: str, certificates: Path, scratch: Path) -> bool:
    """Write the image, its stack and record, who runs it with what, and the compose files; whether anything changed."""
    certificates.mkdir(parents=True, exist_ok=True)
    target = path(project)
    # Any bytes that a person may have there come back as they were.
    before = reading.content(target, ".env").decode(errors="surrogateescape") if target.exists() else ""
    values = {
        IMAGE: image,
        STACK: name,
        CERTIFICATES: _value(project, certificates),
        USER: owner(project),
        FILES: files(before, held.device),
        **{name: value for name, value in limits().items() if not _stands(before, name)},
    }
    after = replaced(before, values)
    if after != before:
        write(target, after.encode(errors="surrogateescape"), scratch)
    return after != before


def limits() -> dict[str, str]:
    """What a container may use of this machine; a person may set other limits."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB
    pids = max(PIDS_LEAST, PIDS_PER_CORE * (os.cpu_count() or 1))
    return {MEMORY: f"{memory(total)}m", PIDS: str(pids)}


def memory(total: int) -> int:
    """The MiB for a container on a host with so many."""
    return max(total - SPARED, total * 3 // 4)


def _stands(text: str, name: str) -> bool:
    return re.search(rf"^[ \t]*(?:export[ \t]+)?{name}[ \t]*=[ \t]*\S", text, re.MULTILINE) is not None


def _value(project: Project, folder: Path) -> str:
    """A folder as compose reads it: from where compose.yaml lies, or absolute; quoted, where it must be."""
    text = f"./{folder.relative_to(project.root)}" if folder.is_relative_to(project.root) else str(folder)
    if re.fullmatch(r"[\w./+@-]+", text):
        return text
    return "'" + text.replace("'", "\\'") + "'"  # compose takes any other backslash as it stands


def owner(project: Project) -> str:
    """Who runs the image, as uid:gid: whose runs/ it is, so that results are theirs; never root."""
    runs = project.root / "runs"
    runs.mkdir(exist_ok=True)
    status = runs.stat()
    if status.st_uid != 0:
        return f"{status.st_uid}:{status.st_gid}"
    if os.geteuid() == 0:
        os.chown(runs, NOBODY_IN_PARTICULAR, NOBODY_IN_PARTICULAR)
    return f"{NOBODY_IN_PARTICULAR}:{NOBODY_IN_PARTICULAR}"


def files(text: str, device: str) -> str:
    """The compose files: those that stand there, with the one for GPUs or without it."""
    stands = re.findall(rf"^\s*(?:export\s+)?{FILES}\s*=(.*)$", text, re.MULTILINE)
    files = [file for file in (stands[-1].strip() if stands else BASE).split(":") if file and file != GPUS]
    if device == "cuda":
        files.insert(files.index(BASE) + 1 if BASE in files else len(files), GPUS)
    return ":".join(files)


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
