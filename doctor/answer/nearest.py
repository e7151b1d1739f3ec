"""The nearest stack that is locked here: the one that takes the fewest steps, and the commands that install it."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from doctor.answer.shell import Shell
from doctor.base import aliases, versions
from doctor.case import Case
from doctor.know import cuda
from doctor.know.data import Stack

# The packages that a training script is written against, by how much a step in one of them costs.
WEIGHTS = {"trl": 5.0, "transformers": 4.0, "vllm": 4.0, "torch": 4.0, "deepspeed": 2.0, "peft": 2.0,
           "accelerate": 2.0, "bitsandbytes": 2.0, "datasets": 1.0}  # fmt: skip
STEPS = ((2.0, 0.5), (0.5, 0.05), (0.1, 0.01))  # the cost of another major, minor or patch version, and of each more
FARTHEST = 30  # versions that are counted
CONTINUED = {"trl": 30}  # the minor version as which 1.0 counts: it followed 0.29 like any other
BACK = 1.5  # an older release lacks what the code was written for


class PackageDifference(NamedTuple):
    """A package that differs: what is installed, and what the stack has."""

    package: str
    installed: str | None
    locked: str


@dataclass
class Nearest:
    """A stack, the difference to it, and the commands that install it."""

    name: str
    title: str
    certified: list[str]  # hardware; empty where nobody has certified it
    difference: list[PackageDifference]  # the packages of WEIGHTS, the most important first
    others: int  # further packages that differ
    commands: list[str]
    notes: list[str]


def find(case: Case, shell: Shell) -> Nearest | None:
    """The nearest stack for this machine's device; None when nothing is known about the environment."""
    if not any(case.version(name) for name in WEIGHTS):
        return None
    stacks = [stack for stack in case.knowledge.stacks if _runs(stack, case)]
    if not stacks:
        return None
    best = min(stacks, key=lambda stack: (_distance(stack, case), not stack["certified"], stack["name"]))
    return _describe(best, case, shell)


def lock_of(stacks: list[Stack], name: str) -> str | None:
    """The lock of a stack, as a requirements.txt with hashes; None where there is no such stack."""
    for stack in stacks:
        if stack["name"] == name:
            return "".join(
                f"{package}=={version} --hash=sha256:{stack['hashes'][package]}\n"
                for package, version in stack["versions"].items()
            )
    return None


def _runs(stack: Stack, case: Case) -> bool:
    """Is it for this device, and does the driver run its CUDA?"""
    torch_cuda = cuda.of_torch(case.environment)
    gpu = bool(case.machine.gpus or case.machine.driver) if case.machine.inspected else torch_cuda != ""
    if (stack["device"] == "cuda") != gpu:
        return False
    driver = case.machine.driver or case.context.facts.get("driver")
    newest = cuda.newest(str(driver)) if driver else None
    return newest is None or stack["device"] == "cpu" or (cuda.major(stack["cuda"]) or 0) <= newest


def _distance(stack: Stack, case: Case) -> float:
    pairs = ((name, case.version(name), stack["versions"].get(name)) for name in WEIGHTS)
    return sum(
        WEIGHTS[name] * _cost(name, installed, locked) for name, installed, locked in pairs if installed and locked
    )


def _cost(name: str, installed: str, locked: str) -> float:
    """0 for the same version; else by the first number that differs, by how much, and in which direction."""
    here, there = _numbers(name, installed), _numbers(name, locked)
    if here is None or there is None:
        return 1.0
    for (cost, more), left, right in zip(STEPS, here, there):
        if left != right:
            return (cost + more * min(abs(left - right), FARTHEST)) * (BACK if right < left else 1.0)
    return 0.0


def _numbers(name: str, version: str) -> tuple[int, ...] | None:
    """Major, minor and patch version."""
    parsed = versions.parse(version)
    if parsed is None:
        return None
    major, minor, patch, *_ = (*parsed.release, 0, 0, 0)
    return (0, CONTINUED[name] + minor, patch) if name in CONTINUED and major == 1 else (major, minor, patch)


def _describe(stack: Stack, case: Case, shell: Shell) -> Nearest:
    pins = stack["versions"].items()
    steps = [PackageDifference(name, case.version(aliases.normalise(name)), locked) for name, locked in pins]
    steps = [step for step in steps if step.installed != step.locked]
    difference = [step for step in steps if aliases.normalise(step.package) in WEIGHTS]
    folder, lock = f"venv-{stack['name']}", f"{stack['name']}.txt"
    backend = " --torch-backend cpu" if stack["device"] == "cpu" else ""
    return Nearest(
        name=stack["name"],
        title=stack["title"],
        certified=stack["certified"],
        difference=sorted(difference, key=lambda step: -WEIGHTS[aliases.normalise(step.package)]),
        others=len(steps) - len(difference),
        commands=[
            f"{shell.doctor} --lock-of {shlex.quote(stack['name'])} > {lock}",
            shell.written(f"uv venv --python {stack['python']} {folder}"),
            shell.written(f"uv pip sync --python {folder} --require-hashes{backend} {lock}", None, stack["cuda"]),
        ],
        notes=[_patched(stack)] if stack["patches"] else [],
    )


def _patched(stack: Stack) -> str:
    """How many patches the image has, by package."""
    counts = Counter(patch.partition("/")[0] for patch in stack["patches"])
    text = ", ".join(f"{count} of {package}" for package, count in counts.most_common())
    return f"the image also has {len(stack['patches'])} patches ({text}): images/patches/"
