""".env: the image that compose.yaml runs, by its digest, with its user, limits and overlays. Other lines stay."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, reading
from builder.base.project import Project, write
from builder.base.text import word
from builder.intent.stack import Stack
from builder.publish import hub

IMAGE, STACK, USER, FILES = "VETTED_IMAGE", "VETTED_STACK", "VETTED_USER", "COMPOSE_FILE"
CERTIFICATES = "VETTED_CERTIFICATES"
MEMORY, PIDS = "VETTED_MEMORY", "VETTED_PIDS"
CACHE, CA, PROFILES = "VETTED_CACHE", "VETTED_CA", "COMPOSE_PROFILES"
# In the order in which compose must read them.
BASE, GPUS, NETWORK, SERVER = "compose.yaml", "compose.gpu.yaml", "compose.network.yaml", "compose.server.yaml"
ORDER = (BASE, GPUS, NETWORK, SERVER)
NOBODY_IN_PARTICULAR = 1000  # the user of the images
MIB = 1 << 20
SPARED = 2048  # MiB for the host, or a quarter of its memory where that is less
# Most processes and threads of a run belong to pools with one for each core.
PIDS_LEAST, PIDS_PER_CORE = 4096, 128


def path(project: Project) -> Path:
    return project.root / ".env"


@dataclass(frozen=True)
class Overlays:
    """Which overlays `train` gets; None leaves what .env has."""

    network: bool | None = None
    server: bool | None = None


def pin(
    project: Project, stack: Stack, name: str, image: str, certificates: Path, scratch: Path,
    overlays: Overlays = Overlays(),
) -> bool:  # fmt: skip
    """Write the image, its stack, record, user, limits and compose files; returns whether anything changed."""
    certificates.mkdir(parents=True, exist_ok=True)
    before = _read(project)
    values = {
        IMAGE: image,
        STACK: name,
        CERTIFICATES: _value(project, certificates),
        USER: owner(project),
    }
    values |= _of_overlays(project, before, stack.device, values[USER], overlays)
    return _replace(project, before, {**values, **_limits(before)}, scratch)


def overlay(project: Project, device: str, overlays: Overlays, scratch: Path) -> bool:
    """Change the overlays of the image that .env has; returns whether anything changed."""
    before = _read(project)
    values = _of_overlays(project, before, device, _last(before, USER, owner(project)), overlays)
    return _replace(project, before, values, scratch)


def machine(project: Project, ours: Path, *, network: bool, scratch: Path) -> bool:
    """Write only what differs between machines; returns whether anything changed. `ours`: a folder for a cache."""
    before = _read(project)
    user = owner(project)
    values = {USER: user, **_of_host(project, before, user, ours, network=network), **_limits(before)}
    return _replace(project, before, values, scratch)


def refuse_link(project: Project) -> None:
    """Raise StorageError for an .env that is a link: it would be lost, and its file may be of other programs too."""
    target = path(project)
    if target.is_symlink():
        raise errors.StorageError(
            f"{target} is a link, so it stays as it is",
            next_step=f'cp --remove-destination "$(readlink -f {word(target)})" {word(target)}, to make it a file',
        )


def _read(project: Project) -> str:
    """The text of .env. Foreign bytes in it are kept as they are."""
    refuse_link(project)
    target = path(project)
    return reading.content(target, ".env").decode(errors="surrogateescape") if target.exists() else ""


def _replace(project: Project, before: str, values: Mapping[str, str], scratch: Path) -> bool:
    after = replaced(before, values)
    if after != before:
        write(path(project), after.encode(errors="surrogateescape"), scratch)
    return after != before


def chosen(project: Project) -> str | None:
    """The stack that .env has an image of; None without one."""
    try:
        text = reading.content(path(project), ".env").decode(errors="surrogateescape")
    except FileNotFoundError:
        return None
    return _last(text, STACK, "") if _is_set(text, IMAGE) else None


def _of_overlays(project: Project, before: str, device: str, user: str, overlays: Overlays) -> dict[str, str]:
    values = {FILES: files(before, device, overlays)}
    ours = project.root / ".vetted" / "huggingface"
    values |= _of_host(project, before, user, ours, network=NETWORK in values[FILES])
    if SERVER in values[FILES] or _is_set(before, PROFILES):
        values[PROFILES] = profiles(before, SERVER in values[FILES])
    return values


def _of_host(project: Project, before: str, user: str, ours: Path, *, network: bool) -> dict[str, str]:
    """The cache, and with a network the tokens and certificate authorities, of this host."""
    values = {}
    results = project.root / "runs"
    if not _is_set(before, CACHE):
        values[CACHE] = _value(project, hub.cache(ours, user, results))
    elif hub.is_below(project.root / _last(before, CACHE, "").strip("'\""), results):  # as an earlier Vetted wrote it
        values[CACHE] = _value(project, hub.make(hub.refuse_links(ours), user))
    if network:
        hub.secrets(user)
        if not _is_set(before, CA) and (bundle := hub.authorities()):
            values[CA] = _value(project, bundle)
    return values


def _limits(before: str) -> dict[str, str]:
    """The limits that .env does not set."""
    return {name: value for name, value in limits().items() if not _is_set(before, name)}


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


def files(text: str, device: str, overlays: Overlays = Overlays()) -> str:
    """The compose files: those that .env names, with or without the overlays, which have an order."""
    named = [file for file in _last(text, FILES, BASE).split(":") if file]
    switches = {GPUS: device == "cuda", NETWORK: overlays.network, SERVER: overlays.server}
    kept = [file for file in named if file not in ORDER]
    ours = [file for file in ORDER if (file in named if switches.get(file) is None else switches[file])]
    # The user's own overlays come last: they change ours.
    return ":".join([*ours, *kept] if BASE in named else [*kept, *ours])


def profiles(text: str, server: bool) -> str:
    """The profiles of .env, with or without that of the server."""
    names = [name for name in _last(text, PROFILES, "").split(",") if name and name != "server"]
    return ",".join([*names, *(["server"] if server else [])])


def _last(text: str, name: str, default: str) -> str:
    values = re.findall(rf"^\s*(?:export\s+)?{name}\s*=(.*)$", text, re.MULTILINE)
    return values[-1].strip() if values else default


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
