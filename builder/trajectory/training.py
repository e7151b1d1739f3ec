"""Training the golden trajectories of a stack: one process, which gets its request as one line of JSON."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from builder.base import errors, machine, process, sources
from builder.base.project import Project
from builder.certify import certificate, certify, suite
from builder.certify.certify import Options
from builder.certify.suite import Runner
from builder.image.buildx import BuildStep
from builder.lock.lockfile import Lock
from builder.trajectory import record
from builder.trajectory.record import Place, Record, Seed

PROGRAM = "smoke/trajectories/__main__.py"


@dataclass(frozen=True)
class Settings:
    """What is trained: these seeds, from `first` on, with so many steps, in processes of so many threads."""

    seeds: int = 30
    steps: int = 200
    threads: int = 1
    first: int = 1


@dataclass(frozen=True)
class Progress:
    """Where the steps of a build, and the seeds that ended, are reported: a seed, and whether it trained to the end."""

    step: Callable[[BuildStep], None]
    seed: Callable[[int, bool], None]


@dataclass(frozen=True)
class Trained:
    """What the seeds of a run recorded, or why they did not."""

    seeds: list[Seed]
    failed: dict[int, str]
    python: str


def of_stack(
    project: Project, lock: Lock, options: Options, settings: Settings, scratch: Path, progress: Progress
) -> Record:
    """Build the image or environment of a lock, train in it, and return the record.

    Raises BadInputError when smoke/ trains no trajectories, and VettedError when the run fails as a whole.
    """
    hardware = machine.hardware(options.device)  # a missing GPU is an error before any work begins
    root = scratch / "suite"
    identity = sources.copy(project.smoke, root)
    task = record.task(root / "smoke")
    subject = certify.subject(project, lock, options, root, scratch, progress.step)
    trained = run(subject.runner, options.device, settings, scratch, progress.seed)
    place = Place.model_validate(
        {"device": options.device, "engine": str(options.engine), "hardware": hardware.hardware_class,
         "threads": settings.threads, "python": trained.python}
    )  # fmt: skip
    return Record(
        stack=lock.name, lock=lock.digest, suite=identity, task=task, date=certificate.today(), place=place,
        steps=settings.steps, seeds=trained.seeds, failed=trained.failed,
    )  # fmt: skip


def run(
    runner: Runner, device: str, settings: Settings, scratch: Path, on_seed: Callable[[int, bool], None]
) -> Trained:
    """Train in a place where the suite would run. Raises VettedError when it reports nothing, or out of turn."""
    argv = command(runner)
    log = scratch / "trajectories.log"
    trained = Trained([], {}, "")
    missing = list(range(settings.first, settings.first + settings.seeds))
    with (
        log.open("wb") as stderr,
        process.running(argv, env=runner.environment, stdin=subprocess.PIPE, stderr=stderr, cwd=scratch) as child,
    ):  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(_request(device, settings)) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once: its log tells why
        for line in child.stdout:
            try:
                trained = _take(trained, missing, json.loads(line), settings.steps, on_seed)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise errors.VettedError(
                    f"the process that trains said something out of turn ({error}): {line.strip()[:200]!r}",
                    cause="the stack wrote to its output, or smoke/ and builder/ are of different versions",
                    next_step="git status smoke builder; then run this again",
                ) from error
        code = child.wait()
    if missing or code != 0:
        raise errors.from_tool(f"training (exit code {code})", log.read_text(errors="replace"))
    return trained


def command(runner: Runner) -> list[str]:
    """The command that runs the suite, with this program in place of the suite's."""
    suites = "/smoke/__main__.py"
    return [f"{part.removesuffix(suites)}/{PROGRAM}" if part.endswith(suites) else part for part in runner.command]


def _request(device: str, settings: Settings) -> dict[str, Any]:
    return {
        "device": device, "first": settings.first, "seeds": settings.seeds, "steps": settings.steps,
        "threads": settings.threads, "memory_mib": suite.memory_mib(),
    }  # fmt: skip


def _take(
    trained: Trained, missing: list[int], event: dict[str, Any], steps: int, on_seed: Callable[[int, bool], None]
) -> Trained:
    """Take one event. Raises ValueError, KeyError, TypeError or AttributeError when it is none, or out of turn."""
    if event["event"] == "start":
        return replace(trained, python=str(event["python"]))
    if event["event"] != "seed":
        return trained
    seed = event["seed"]
    missing.remove(seed)
    if "failure" in event:
        trained.failed[seed] = str(event["failure"])
    else:
        numbers = {str(name): [float(value) for value in values] for name, values in event["numbers"].items()}
        if not numbers or not all(len(values) == steps for values in numbers.values()):
            raise ValueError(f"seed {seed} has not {steps} steps")
        if not all(math.isfinite(value) for values in numbers.values() for value in values):
            raise ValueError(f"seed {seed} has a number that is not finite")
        trained.seeds.append(record.seed_of(seed, numbers))
    on_seed(seed, "failure" not in event)
    return trained
