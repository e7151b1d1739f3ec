"""Running a user's own configuration through the suite: the probes that apply to it, and two more that know it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.base import machine, sources
from builder.base.project import Project
from builder.certify import catalogue, certify, combination, configuration, suite
from builder.certify.certificate import ProbeResult
from builder.certify.certify import Options
from builder.certify.configuration import Configuration
from builder.certify.transcript import Event
from builder.image.buildx import BuildStep
from builder.lock.lockfile import Lock

FOLDER = "own"  # of the suite: the two probes
LIMITS = (
    "what shows only at size: memory, speed, overflow in 16-bit numbers of a wide model",
    "your reward functions, data, chat template and learning rate: a run on a few rows shows them",
)


@dataclass(frozen=True)
class Examination:
    """What a configuration came to on a stack.

    `left_out`: the probes whose question it does not ask, with the reason. `unjudged`: its settings that no level of
    the suite stands for, in words.
    """

    configuration: Configuration
    row: dict[str, str]
    unjudged: tuple[str, ...]
    left_out: dict[str, str]
    results: tuple[ProbeResult, ...]

    @property
    def passed(self) -> bool:
        """Whether no probe is red."""
        return all(result.outcome in ("passed", "not-run") for result in self.results)

    def to_json(self) -> dict[str, Any]:
        """The examination as JSON."""
        return {
            "config": self.configuration.file,
            "model_config": self.configuration.model_file or None,
            "result": "PASSED" if self.passed else "FAILED",
            "combination": self.row,
            "not_judged": [*self.unjudged, *LIMITS],
            "left_out": self.left_out,
            "probes": [result.model_dump(mode="json") for result in self.results],
        }


def examine(
    project: Project,
    lock: Lock,
    options: Options,
    own: Configuration,
    scratch: Path,
    on_build: Callable[[BuildStep], None],
    on_event: Callable[[Event], None],
) -> Examination:
    """Run the probes that apply to a configuration in a stack's image or environment."""
    machine.hardware(options.device)  # a missing GPU is an error before any work begins
    root = scratch / "suite"
    sources.copy(project.smoke, root)
    row, unjudged = combination.row(own)
    probes = root / "smoke" / "probes"
    probes.mkdir(exist_ok=True)
    added = []
    for file in sorted((root / "smoke" / FOLDER).glob("[!_]*.py")):
        shutil.copy(file, probes)
        added.append(file.stem.replace("_", "-"))
    given = probes / "own.json"
    given.write_text(
        json.dumps({"row": row, "model": own.model, "ranks": min(2, own.processes)}, default=str), encoding="utf-8"
    )
    given.chmod(0o644)
    left_out = configuration.left_out(catalogue.read(project.smoke), own)
    chosen = [*added, *(probe.name for probe in catalogue.read(project.smoke) if probe.name not in left_out)]
    place = certify.subject(project, lock, options, root, scratch, on_build)
    request = suite.Request(options.device, lock.versions, tuple(chosen))
    answer = suite.run(place.runner, request, scratch, on_event)
    return Examination(own, row, tuple(unjudged), left_out, answer.results)
