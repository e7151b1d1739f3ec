"""The stack for this machine: the newest whose kernels its GPUs run, with its driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builder.base import errors, machine
from builder.base.machine import Gpu
from builder.base.project import Project
from builder.certify import standing
from builder.intent import stack
from builder.lock import architecture, gpus, kernels, lockfile
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Choice:
    """A stack, and why it fits this machine."""

    name: str
    reason: str


def choose(project: Project) -> Choice:
    """The stack for this machine: certified for its hardware if one is, else the newest that fits.

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
            next_step=f"update the driver, or train on the CPU: vetted use {for_cpu[-1].name if for_cpu else 'STACK'}",
        )
    place = machine.hardware("cuda").hardware_class
    certified = [lock for lock in fitting if any(_is(place, each) for each in standing.certified_on(project, lock))]
    chosen = max(certified or fitting, key=_age)
    reason = "it is certified for this hardware" if certified else "the newest that fits; not certified for it yet"
    return Choice(chosen.name, f"{models}, driver {here[0].driver}: {reason}")


def _description(gpu: Gpu) -> str:
    """Its model, and its memory where that is known. Every CUDA stack needs the same, so memory decides nothing."""
    return f"{gpu.name} ({gpu.memory_mib / 1024:.0f} GiB)" if gpu.memory_mib else gpu.name


def _is(hardware_class: str, place: str) -> bool:
    """Whether a place, such as "1x NVIDIA H200, driver 580.95.05 (image)", is this hardware."""
    return place.partition(" (")[0] == hardware_class


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
