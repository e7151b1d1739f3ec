"""Which GPU runs which image, in the documents: from the kernels in the locked files."""

from __future__ import annotations

from collections.abc import Mapping

from builder.base.project import Project
from builder.certify import standing
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.lock import architecture, kernels, lockfile
from builder.lock import gpus as known
from builder.lock.gpus import Gpu
from builder.lock.kernels import Kernels
from builder.lock.lockfile import Lock
from builder.pages import cells
from builder.pages.cells import Markdown

PTX = "PTX (slow first start)"
NOT_READ, STALE = "not read yet", "read from another lock"
CERTIFIED, AUDITED, NOT_CERTIFIED = "certified on", "audited, not certified", "not certified"
ARM = "the host is an Arm machine"
NO_IMAGE = "no image for arm64"
SOURCES = "JIT from source"


def rows(project: Project) -> dict[str, dict[str, str]]:
    """Stack for CUDA -> GPU -> its verdict, the least driver where it runs, and whether it is certified."""
    locks = [lockfile.load(project, name) for name in stack.names(project)]
    return {
        lock.name: of_stack(project, lock, standing.certified_on(project, lock)) for lock in locks if kernels.cuda(lock)
    }


def of_stack(project: Project, lock: Lock, places: list[str]) -> dict[str, str]:
    """GPU -> its verdict in words; empty for a stack that is not for CUDA. `places`: where it is certified."""
    if not kernels.cuda(lock):
        return {}
    there = ARM64.name in stack.load(project, lock.name).platforms
    arm = lockfile.load(project, lock.name, ARM64) if there else None
    return {
        gpu.title: _line(project, arm, gpu, []) if gpu.arm else _line(project, lock, gpu, places) for gpu in known.GPUS
    }


def _line(project: Project, lock: Lock | None, gpu: Gpu, places: list[str]) -> str:
    """`lock`: that for the processor of the GPU's host."""
    if lock is None:
        return NO_IMAGE
    read = kernels.load(project, lock.name, lock.platform)
    if read is None or kernels.stale(project, lock):
        return NOT_READ if read is None else STALE
    verdicts = known.verdicts(known.architectures(read), gpu.capability)
    verdict = known.worst(verdicts)
    if verdict == "absent":
        return verdict
    line = f"{PTX if verdict == 'PTX' else verdict}, driver ≥ {architecture.driver(read.cuda, gpu.capability)}"
    models = known.certified(gpu, places)
    return f"{line}, {CERTIFIED} {' and '.join(models)}" if models else line


def gpus(project: Project) -> str:
    """Every GPU beside every stack for CUDA that the project ships."""
    known_rows = rows(project)
    shipped = [name for name in stack.shipped(project) if name in known_rows]
    body = []
    for gpu in known.GPUS:
        lines = [known_rows[name][gpu.title] for name in shipped]
        runs = any(line not in ("absent", NOT_READ, STALE, NO_IMAGE) for line in lines)
        models = known.certified(gpu, [line.partition(CERTIFIED)[2] for line in lines])
        state = f"{CERTIFIED} {' and '.join(models)}" if models else AUDITED if runs else NOT_CERTIFIED
        body.append([gpu.title, gpu.number, *lines, f"{state}; {ARM}" if gpu.arm else state])
    return cells.table(["GPU", "compute capability", *map(cells.code, shipped), "state"], body)


def drivers(_project: Project) -> str:
    """Where the least drivers are from, and what has one source alone."""
    body = []
    for least in architecture.LEAST_DRIVERS:
        alone = ["one source"] if len(least.sources) == 1 else []
        sources = cells.joined([*_links(least.sources), *alone], ", ")
        body.append([least.version, least.of, sources, cells.joined([least.besides, *_links(least.there)], " ")])
    return cells.table(["driver", "of", "from", "besides"], body)


def _links(addresses: Mapping[str, str]) -> list[Markdown]:
    return [Markdown(f"[{cells.escaped(title)}]({address})") for title, address in addresses.items()]


def libraries(project: Project) -> str:
    """The verdict on every part of every stack, by GPU, and the architectures that it is from."""
    body: list[list[object]] = []
    for name in stack.shipped(project):
        for lock in lockfile.load_all(project, name):
            if read := kernels.of_lock(project, lock):
                body += _libraries(lock.image, read)
    return cells.table(["stack", "library", *(gpu.number for gpu in known.GPUS), "built for"], body)


def _libraries(name: str, read: Kernels) -> list[list[object]]:
    body: list[list[object]] = []
    for title, names in known.architectures(read).items():
        verdicts = [architecture.verdict(gpu.capability, names) for gpu in known.GPUS]
        body.append([cells.code(name), title, *verdicts, cells.codes(names)])
    for title in filter(read.sources.__contains__, known.COMPILED):
        files = f"sources: {read.sources[title]}"
        body.append([cells.code(name), title, *[SOURCES] * len(known.GPUS), files])
    return body
