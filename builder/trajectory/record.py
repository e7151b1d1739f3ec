"""The record of golden trajectories: the numbers of every step of the same training, for every seed.

It lies beside a stack's certificates, and is neither signed nor part of them.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from builder.base import errors, reading
from builder.base.project import Project, sha256
from builder.base.text import word
from builder.certify.certificate import Day

# The files that decide what is trained, below smoke/. Records of another task cannot be compared.
TASK = ("trajectories/task.py", "kit/grpo.py", "kit/tiny.py")
DIGITS = 5  # of the numbers in the file; `bits` tells whether all digits are the same
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Numbers = Mapping[str, Sequence[float]]  # of one seed: the value of every step, by name


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Place(_Model):
    """Where it was trained: the hardware class, the engine, the device and the threads of each process."""

    device: Literal["cpu", "cuda"]
    engine: Literal["docker", "host"]
    hardware: str
    threads: Annotated[int, Field(ge=1)] = 1
    python: str = ""


class Seed(_Model):
    """One seed: the digest of its numbers with all their digits, and the numbers with five."""

    seed: int
    bits: str
    numbers: dict[str, list[float]]


class Record(_Model):
    """Everything that one run recorded. `failed`: the seeds that did not train to the end, and why."""

    format: Literal[1] = 1
    stack: str
    lock: Digest
    suite: Digest
    task: Digest
    date: Day
    place: Place
    steps: Annotated[int, Field(ge=1)]
    seeds: list[Seed]
    failed: dict[int, str] = {}

    @model_validator(mode="after")
    def _whole(self) -> Record:
        numbers = [seed.seed for seed in self.seeds]
        if len(set(numbers) | self.failed.keys()) != len(numbers) + len(self.failed):
            raise ValueError("a seed comes twice")
        if len({frozenset(seed.numbers) for seed in self.seeds}) > 1:
            raise ValueError("its seeds have different numbers")
        if any(len(values) != self.steps for seed in self.seeds for values in seed.numbers.values()):
            raise ValueError(f"a seed has not {self.steps} steps")
        return self

    @property
    def names(self) -> list[str]:
        """The names of the numbers."""
        return list(self.seeds[0].numbers) if self.seeds else []

    def to_json(self) -> str:
        """JSON with one line for each seed and number, so that a diff shows what moved."""
        document = self.model_dump(mode="json")
        seeds = document.pop("seeds")
        head = json.dumps(document, indent=1).removesuffix("\n}")
        rows = []
        for seed in seeds:
            numbers = ",\n".join(f'   "{name}": {json.dumps(values)}' for name, values in seed["numbers"].items())
            rows.append(f'  {{"seed": {seed["seed"]}, "bits": "{seed["bits"]}", "numbers": {{\n{numbers}\n  }}}}')
        return f'{head},\n "seeds": [\n' + ",\n".join(rows) + "\n ]\n}\n"


def seed_of(seed: int, numbers: Numbers) -> Seed:
    """The record of one seed, from its numbers with all digits."""
    digest = hashlib.sha256()
    for name in sorted(numbers):
        digest.update(f"{name} {len(numbers[name])}\n".encode())
        digest.update(struct.pack(f"<{len(numbers[name])}d", *numbers[name]))
    rounded = {name: [float(f"{value:.{DIGITS}g}") for value in values] for name, values in numbers.items()}
    return Seed(seed=seed, bits=digest.hexdigest()[:16], numbers=rounded)


def task(smoke: Path) -> str:
    """The digest of the files of smoke/ that decide what is trained. Raises BadInputError when one is missing."""
    try:
        return sha256(b"".join((smoke / file).read_bytes() for file in TASK))
    except FileNotFoundError as error:
        raise errors.BadInputError(
            f"{error.filename} is missing: this smoke/ trains no golden trajectories",
            cause="smoke/ and builder/ are of different versions",
            next_step="git status smoke",
        ) from error


def require_todays(smoke: Path, record: Record) -> None:
    """Raise BadInputError for a record that no run of today can be compared with, before any work begins."""
    if record.task != task(smoke):
        raise errors.BadInputError(
            f"the record of {record.stack} is of another task than smoke/ trains today",
            cause="smoke/trajectories or smoke/kit was changed since",
            next_step=f"vetted trajectories {word(record.stack)}",
        )


def name(place: Place) -> str:
    """The name of a record's file: `cpu-host`, and the threads where there is more than one."""
    return f"{place.device}-{place.engine}" + (f"-{place.threads}threads" if place.threads > 1 else "")


def path(project: Project, stack: str, place: Place) -> Path:
    """Where the record of a stack belongs."""
    return folder(project, stack) / f"{name(place)}.json"


def folder(project: Project, stack: str) -> Path:
    """The folder of a stack's records."""
    return project.stack_dir(stack) / "trajectories"


def read(file: Path, where: str) -> Record:
    """Read a record; `where` is its name in messages. Raises BadInputError; OSError when it cannot be opened."""
    restore = f"git checkout {word(where)}, or remove it and record it again"
    document = reading.json_object(file, where, restore)
    try:
        return Record.model_validate(document)
    except (ValidationError, RecursionError) as error:
        raise errors.BadInputError(
            f"{where} is no record of golden trajectories: {_first(error)}",
            cause="the file was edited or cut short, or a merge left its marks",
            next_step=restore,
        ) from error


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "it is nested too deeply"
    detail = error.errors(include_url=False)[0]
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else detail["msg"].removeprefix("Value error, ")


def of_stack(project: Project, stack: str) -> list[Record]:
    """The records of a stack, by the names of their files. Raises BadInputError for a damaged one."""
    return [read(file, project.relative(file)) for file in sorted(folder(project, stack).glob("*.json"))]
