"""Which units a fleet has, and how long each may take, from what the last certificate measured."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from builder.base import errors
from builder.base.project import Project
from builder.certify import certificate
from builder.fleet.unit import Unit
from builder.lock import lockfile

KIND = re.compile(r"(?P<kind>[A-Za-z0-9_.-]+)(:(?P<number>[1-9][0-9]{0,2}))?")
SLACK = 4  # a busy machine took up to 3.5 times the median
MAKING = 30  # minutes to build or install a stack
UNKNOWN = 120  # minutes, for a stack without a certificate


def gpus(text: str) -> list[tuple[str, int]]:
    """The kinds in `h200:2,a100`, each with a number. Raises ValueError."""
    kinds = []
    for part in text.split(","):
        match = KIND.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{part!r} is not KIND:NUMBER, such as h200:2")
        kinds.append((match["kind"], int(match["number"] or 1)))
    if len(dict(kinds)) != len(kinds):
        raise ValueError(f"{text!r} names a kind twice")
    return kinds


def units(home: Project, stacks: Sequence[str], kinds: Sequence[tuple[str, int]], engine: str) -> list[Unit]:
    """A unit for each CPU stack, and one for each CUDA stack and kind of GPU. Raises BadInputError."""
    planned = []
    for name in dict.fromkeys(stacks):
        if lockfile.load(home, name).stack.device == "cpu":
            planned.append(Unit(name, engine))
        elif not kinds:
            raise errors.BadInputError(
                f"{name} needs a GPU, and no kind is named", next_step="--gpus h200:1, as the scheduler calls it"
            )
        else:
            planned += [Unit(name, engine, kind, number) for kind, number in kinds]
    return planned


def minutes(home: Project, unit: Unit) -> int:
    """The time limit of a unit."""
    measured = [
        sum(probe.seconds for probe in statement.predicate.probes)
        for statement in certificate.of_stack(home, unit.stack).values()
    ]
    return MAKING + math.ceil(SLACK * max(measured) / 60) if measured else UNKNOWN
