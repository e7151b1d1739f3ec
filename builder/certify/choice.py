"""The stack for this machine: the newest whose kernels its GPUs run, with its driver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from builder.base import errors, machine
from builder.base.machine import Gpu
from builder.base.project import Project
from builder.base.text import word
from builder.certify import standing
from builder.intent import stack
from builder.lock import architecture, gpus, kernels, lockfile
from builder.lock.lockfile import Lock

_MODELS = re.compile(r"\b\d+x (.+?)(?= \+ \d+x |$)")  # of a class of hardware, such as "2x NVIDIA H200 + 1x Tesla T4"


@dataclass(frozen=True)
class Choice:
    """A stack, and why it fits this machine."""

    name: str
    reason: str


def choose(project: Project) -> Choice:
    """The stack for this machine: the one that is certified on what is nearest to it, else the newest that fits.

    Raises BadInputError when none fits.
    """
    here = machine.gpus()
    locks = [lockfile.load(project, name) for name in stack.shipped(project)]
    locks = [lock for lock in locks if lock.stack.extends is None]  # an extension is asked for by its name
    for_cpu = [lock for lock in locks if lock.stack.device == "cpu"]
    if not here:
        if not for_cpu:
            raise errors.BadInputError(
                "the project has no stack for the CPU", next_step="vetted use STACK; vetted list"
            )
        return Choice(for_cpu[-1].name, "no NVIDIA GPU is visible here")
    obstacles = {lock.name: obstacle(project, lock, here) for lock in locks if lock.stack.device == "cuda"}
    fitting = [lock for lock in locks if obstacles.get(lock.name) == ""]
    models = ", ".join(dict.fromkeys(map(_description, here)))
    if not fitting:
        raise errors.BadInputError(
            f"no CUDA stack fits {models} with driver {here[0].driver}\n"
            + "\n".join(f"{name}: {reason}" for name, reason in obstacles.items()),
            cause="the GPU is older than the stacks, or the driver is",
            next_step="update the driver, or train on the CPU: "
            f"vetted use {word(for_cpu[-1].name) if for_cpu else 'STACK'}",
        )
    own = machine.hardware("cuda").hardware_class
    proofs = {lock.name: _proof(standing.certified_on(project, lock), own, here) for lock in fitting}
    chosen = max(fitting, key=lambda lock: (proofs[lock.name].strength, _age(lock)))
    return Choice(chosen.name, f"{models}, driver {here[0].driver}: {proofs[chosen.name].reason}")


class _Proof(NamedTuple):
    """What certificates say of a stack on a machine. `strength`: the more, the nearer to it."""

    strength: int
    reason: str


def _proof(places: Sequence[str], own: str, here: Sequence[Gpu]) -> _Proof:
    """The best of the places where a stack is certified, such as "1x NVIDIA H200, driver 580.95.05 (image)"."""
    if f"{own} (image)" in places:
        return _Proof(4, "it is certified for this hardware")
    if f"{own} (lock)" in places:
        return _Proof(3, "its lock is certified for this hardware, and its image is not")
    models = {gpu.name for gpu in here}
    if alike := [place for place in places if models <= set(_models(place))]:
        return _Proof(2, f"{_where(alike)}; not certified for this machine")
    capabilities = {gpu.capability for gpu in here}
    if alike := [place for place in places if capabilities <= set(map(gpus.capability, _models(place)))]:
        numbers = ", ".join(".".join(map(str, capability)) for capability in sorted(capabilities))
        what = f"also of compute capability {numbers}"
        return _Proof(1, f"{_where(alike)}, {what}; not certified for this machine")
    return _Proof(0, "the newest that fits; not certified for it yet")


def _models(place: str) -> list[str]:
    return _MODELS.findall(place.partition(", driver ")[0])


def _where(places: Sequence[str]) -> str:
    """The first of the places where an image is certified, or else the lock."""
    of_images = [place for place in places if place.endswith("(image)")]
    what = "certified" if of_images else "its lock is certified"
    return f"{what} on {(of_images or places)[0].partition(' (')[0]}"


def _description(gpu: Gpu) -> str:
    """Its model, and its memory where that is known. Every CUDA stack needs the same, so memory decides nothing."""
    return f"{gpu.name} ({gpu.memory_mib / 1024:.0f} GiB)" if gpu.memory_mib else gpu.name


def obstacle(project: Project, lock: Lock, here: Sequence[Gpu]) -> str:
    """Why a CUDA stack does not run on these GPUs; empty if it does."""
    read = kernels.of_lock(project, lock)
    if read is None:
        return "nobody has read its kernels"
    parts = gpus.architectures(read)
    for gpu in here:
        if gpus.worst(gpus.verdicts(parts, gpu.capability)) == "absent":
            return f"no kernels for {gpu.name} (compute capability {'.'.join(map(str, gpu.capability))})"
        least = architecture.driver(read.cuda, gpu.capability)
        if architecture.numbers(gpu.driver) < architecture.numbers(least):
            return f"it needs driver {least}, and this one is {gpu.driver}"
    return ""


def _age(lock: Lock) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The newer, the larger: by TRL, then by torch."""
    versions = (lock.versions.get(name, "0").partition("+")[0] for name in ("trl", "torch"))
    trl, torch = (tuple(int(part) for part in version.split(".") if part.isdecimal()) for version in versions)
    return trl, torch
