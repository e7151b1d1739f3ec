"""What a certificate describes in words: the hardware, the engine and Python. Can it be so, for a stack like this?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from builder.base import text
from builder.base.machine import Hardware
from builder.certify.certificate import Resource, Statement
from builder.lock.lockfile import Lock

# The keys in the description of each engine: the required ones, and the optional ones.
ENGINES = {
    "docker": ({"name", "version", "buildkit", "kernel"}, set[str]()),
    "host": ({"name", "system", "kernel"}, {"bundle"}),
    "chroot": ({"name", "system", "kernel", "buildkit", "bundle"}, set[str]()),  # an image on a host without Docker
    "kubernetes": ({"name", "version", "buildkit", "kernel"}, set[str]()),  # an image in a pod
}
PARTS = ("hardware", "engine", "python")
LONGEST = 400  # characters of a text that nobody can check
MOST_CORES = 1 << 20


def engine(statement: Statement) -> str:
    """The name of the engine, as the statement says it."""
    return str((statement.resource("engine").annotations or {}).get("name"))


def doubts(statement: Statement, lock: Lock) -> Iterator[str]:
    """The doubts about what it says of hardware, engine and Python."""
    yield from _hardware(statement.resource("hardware"), lock.stack.device)
    described = statement.resource("engine").annotations or {}
    required, optional = ENGINES.get(engine(statement), (set[str](), set[str]()))
    keys = described.keys()
    if not required or not required <= keys <= required | optional or not all(map(_text, described.values())):
        yield f"its engine is not known: {described}"
    python = statement.resource("python").annotations or {}
    if not re.fullmatch(rf"{re.escape(lock.stack.python)}\.[0-9]+", str(python.get("version"))) or len(python) != 1:
        yield f"it ran on Python {text.line(str(python.get('version')))}, not {lock.stack.python}"
    for resource in statement.predicate.configuration:
        if resource.name in PARTS and resource.digest is not None:
            yield f"its {resource.name} has a digest"


def _hardware(resource: Resource, device: str) -> Iterator[str]:
    annotations = resource.annotations or {}
    cpu, cores, gpus, driver = (annotations.get(key) for key in ("cpu", "cores", "gpus", "driver"))
    if (
        annotations.keys() - {"class", "cpu", "cores", "gpus", "driver"}
        or not _text(cpu)
        or type(cores) is not int
        or not 1 <= cores <= MOST_CORES
    ):
        yield "its hardware is not known"
        return
    names = gpus if isinstance(gpus, list) else []
    if device == "cuda" and (not names or not all(map(_text, names)) or not _text(driver)):
        yield "it was earned without a GPU, and the stack is made for CUDA"
    elif device != "cuda" and (gpus is not None or driver is not None):
        yield "it names GPUs, and the stack is made for the CPU"
    else:
        hardware = Hardware(str(cpu), cores, tuple(names), str(driver) if driver else None)
        if annotations.get("class") != hardware.hardware_class:
            yield f"its hardware contradicts itself: {annotations.get('class')!r} is not {hardware.hardware_class!r}"


def _text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()
