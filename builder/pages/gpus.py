"""Which GPU runs which image, in the documents: from the kernels in the locked files."""

from __future__ import annotations

from builder.base.project import Project
from builder.certify import standing
from builder.intent import stack
from builder.lock import architecture, kernels, lockfile
from builder.lock import gpus as known
from builder.lock.gpus import Gpu
from builder.lock.kernels import Kernels
from builder.lock.lockfile import Lock
from builder.pages import cells

PTX = "PTX (slow first start)"
NOT_READ, STALE = "not read yet", "read from another lock"
CERTIFIED, AUDITED, NOT_CERTIFIED = "certified", "audited, not certified", "not certified"
ARM = "not certified: the host is an Arm machine, and images are for x86-64"
SOURCES = "JIT from source"


def rows(project: Project) -> dict[str, dict[str, str]]:
    """Stack for CUDA -> GPU -> its verdict, the least driver where it runs, and whether it is certified."""
    answer: dict[str, dict[str, str]] = {}
    for name in stack.names(project):
        lock = lockfile.load(project, name)
        if kernels.cuda(lock):
            places = standing.certified_on(project, lock)
            answer[name] = {gpu.title: _line(project, lock, gpu, places) for gpu in known.GPUS}
    return answer


def _line(project: Project, lock: Lock, gpu: Gpu, places: list[str]) -> str:
    read = kernels.load(project, lock.name)
    if read is None or read.lock != lock.digest:
        return NOT_READ if read is None else STALE
    verdicts = known.verdicts(known.architectures(read), gpu.capability)
    verdict = known.worst(verdicts)
    if verdict == "absent":
        return verdict
    line = f"{PTX if verdict == 'PTX' else verdict}, driver ≥ {architecture.driver(read.cuda, gpu.capability)}"
    return f"{line}, {CERTIFIED}" if known.certified(gpu, places) else line


def gpus(project: Project) -> str:
    """Every GPU beside every stack for CUDA that the project ships."""
    known_rows = rows(project)
    shipped = [name for name in stack.shipped(project) if name in known_rows]
    body = []
    for gpu in known.GPUS:
        lines = [known_rows[name][gpu.title] for name in shipped]
        runs = any(line not in ("absent", NOT_READ, STALE) for line in lines)
        if any(line.endswith(CERTIFIED) for line in lines):
            state = CERTIFIED
        else:
            state = ARM if gpu.arm else AUDITED if runs else NOT_CERTIFIED
        body.append([gpu.title, gpu.number, *lines, state])
    return cells.table(["GPU", "compute capability", *map(cells.code, shipped), "state"], body)


def libraries(project: Project) -> str:
    """The verdict on every part of every stack, by GPU, and the architectures that it is from."""
    body: list[list[object]] = []
    for name in stack.shipped(project):
        if read := kernels.of_lock(project, lockfile.load(project, name)):
            body += _libraries(name, read)
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
