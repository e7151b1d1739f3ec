"""From a lock to the GPUs that run it: gpus."""

from __future__ import annotations

from typing import Annotated

import typer

from builder import console
from builder.base import errors, project
from builder.base.project import Project
from builder.commands.common import AsJson, OnePlatform, OneStack, print_json, refuse
from builder.intent.platform import PLATFORMS
from builder.lock import architecture, audit, kernels, lockfile
from builder.lock import gpus as known
from builder.lock.kernels import Kernels
from builder.lock.lockfile import Lock
from builder.pages import generate


def gpus_(
    name: OneStack,
    record: Annotated[
        bool,
        typer.Option("--record", help="Read the locked files, gigabytes of them. Write gpus.json beside the lock."),
    ] = False,
    platform: Annotated[OnePlatform, typer.Option(help="The processor of the host.")] = OnePlatform.amd64,
    as_json: AsJson = False,
) -> None:
    """Show which GPUs the kernels of a stack are for."""
    home = project.find()
    lock = lockfile.load(home, name, PLATFORMS[platform])
    if kernels.cuda(lock) is None:
        raise errors.BadInputError(f"{name} is a stack for CPUs: it has no kernels", next_step="vetted list --gpus")
    read = _record(home, lock) if record else kernels.load(home, name, lock.platform)
    if read is None:
        raise errors.BadInputError(
            f"nobody has read the kernels of {lock.image}", next_step=kernels.command(name, lock.platform)
        )
    refuse(name, kernels.stale(home, lock))
    parts = known.architectures(read)
    if as_json:
        document = {"stack": name, "platform": lock.platform.name, "cuda": read.cuda, "parts": parts}
        print_json({**document, "gpus": _verdicts(read)})
        return
    table = console.plain("GPU", "capability", "stack", *parts, "driver")
    for gpu in known.GPUS:
        verdicts = known.verdicts(parts, gpu.capability)
        least = architecture.driver(read.cuda, gpu.capability)
        table.add_row(gpu.title, gpu.number, known.worst(verdicts), *verdicts.values(), f"≥ {least}")
    console.out.print(table)


def _record(home: Project, lock: Lock) -> Kernels:
    with home.holding(lock.name) as scratch:
        refuse(lock.name, audit.stale(lock))
        with console.spinner(f"{lock.image}: reading the kernels of the locked files"):
            read = kernels.record(home, lock, scratch, lambda _: None)
    with home.holding(".documents") as scratch:
        generate.refresh(home, scratch)
    return read


def _verdicts(read: Kernels) -> dict[str, dict[str, object]]:
    """GPU -> its compute capability, the least driver, the verdict on the stack and on each part."""
    answer: dict[str, dict[str, object]] = {}
    for gpu in known.GPUS:
        verdicts = known.verdicts(known.architectures(read), gpu.capability)
        answer[gpu.title] = {
            "capability": gpu.number, "driver": architecture.driver(read.cuda, gpu.capability),
            "stack": known.worst(verdicts), "parts": verdicts,
        }  # fmt: skip
    return answer
