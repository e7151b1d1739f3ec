"""The nearest stack that is locked here: the one that takes the fewest steps, and the commands that get there."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from doctor.base import versions
from doctor.case import Case
from doctor.checks import cuda
from doctor.read.machine import newest_cuda

# A step in one of these weighs more than one in all the rest: they are what a training script is written against.
WEIGHTS = {"trl": 5.0, "transformers": 4.0, "vllm": 4.0, "torch": 4.0, "deepspeed": 2.0, "peft": 2.0,
           "accelerate": 2.0, "bitsandbytes": 2.0, "datasets": 1.0}  # fmt: skip


@dataclass
class Nearest:
    name: str
    title: str
    certified: list[str]  # where; empty when nobody has certified it
    python: str
    difference: list[tuple[str, str | None, str]]  # package, what is installed, what the stack has
    others: int  # further packages that differ
    commands: list[str]
    notes: list[str]


def find(case: Case, script: str) -> Nearest | None:
    """The nearest stack for this machine's device; None when nothing is known of the environment."""
    if not any(case.environment.version(name) for name in WEIGHTS):
        return None
    stacks = [one for one in case.data.get("stacks", ()) if _runs(one, case)]
    if not stacks:
        return None
    best = min(stacks, key=lambda one: (_distance(one, case), not one["certified"], one["name"]))
    return _describe(best, case, script)


def _runs(stack: dict[str, Any], case: Case) -> bool:
    """Is it for this device, and does the driver run its CUDA?"""
    built = cuda.of_torch(case)
    gpu = bool(case.machine.gpus or case.machine.driver) if case.machine.looked_at else built != ""
    if (stack["device"] == "cuda") != gpu:
        return False
    driver = case.machine.driver or case.context.known.get("driver")
    newest = newest_cuda(str(driver)) if driver else None
    return newest is None or stack["device"] == "cpu" or int(stack["cuda"].partition(".")[0] or 0) <= newest


def _distance(stack: dict[str, Any], case: Case) -> float:
    total = 0.0
    for name, weight in WEIGHTS.items():
        have, wanted = case.environment.version(name), stack["versions"].get(name)
        if have is None or wanted is None:
            continue
        total += weight * _step(have, wanted)
    return total


def _step(have: str, wanted: str) -> float:
    """0 for the same version; then the first number that differs, and by how much."""
    one, other = versions.parse(have), versions.parse(wanted)
    if one is None or other is None:
        return 1.0
    for place, (left, right) in enumerate(zip((*one.release, 0, 0, 0)[:3], (*other.release, 0, 0, 0)[:3])):
        if left != right:
            return (1.0, 0.5, 0.1)[place] + min(abs(left - right), 50) / 100
    return 0.0


def _describe(stack: dict[str, Any], case: Case, script: str) -> Nearest:
    pins: dict[str, str] = stack["versions"]
    difference, others = [], 0
    for name, wanted in pins.items():
        have = case.environment.version(versions.name(name))
        if have == wanted:
            continue
        if versions.name(name) in WEIGHTS:
            difference.append((name, have, wanted))
        else:
            others += 1
    folder, lock = f"venv-{stack['name']}", f"{stack['name']}.txt"
    backend = " --torch-backend cpu" if stack["device"] == "cpu" else ""
    commands = [
        f"{script} --lock-of {shlex.quote(stack['name'])} > {lock}",
        f"uv venv --python {stack['python']} {folder}",
        f"uv pip sync --python {folder} --require-hashes{backend} {lock}",
    ]
    notes = (
        [f"the image carries {len(stack['patches'])} patches besides: {', '.join(stack['patches'])}"]
        if stack["patches"]
        else []
    )
    return Nearest(
        stack["name"], stack["title"], stack["certified"], stack["python"],
        sorted(difference, key=lambda one: -WEIGHTS[versions.name(one[0])]), others, commands, notes,
    )  # fmt: skip


def lock_of(data: dict[str, Any], name: str) -> str | None:
    """The lock of a stack, as a requirements.txt with hashes."""
    for stack in data.get("stacks", ()):
        if stack["name"] == name:
            return "".join(
                f"{package}=={version} --hash=sha256:{stack['hashes'][package]}\n"
                for package, version in stack["versions"].items()
            )
    return None
