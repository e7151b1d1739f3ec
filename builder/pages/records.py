"""What the files under docs/evidence/ contain: one model for each file."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, lt=1 << 53)]
Bytes = Annotated[int, Field(gt=0, lt=1 << 53)]
Seconds = Annotated[float, Field(ge=0)]


class Model(BaseModel):
    """Nothing is converted. Keys that the documents do not show are kept out."""

    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class File(Model):
    """The content of docs/evidence/<FILE>.json."""

    FILE: ClassVar[str]


class Record(File):
    """A measurement: when it was made, on which machine, by which command."""

    date: str
    machine: str
    command: str


class SuiteRecord(Record):
    """A measurement of the suite that has this digest."""

    suite: str


Share = Annotated[float, Field(ge=0, le=1)]


class Score(Model):
    """Shares of the reports of a batch, and how many without a culprit raised an alarm."""

    top1: Share
    mends_top1: Share
    mends_top3: Share
    confident_wrong: Share
    confident_on_negatives: Count


class Batch(Model):
    name: str
    reports: Count
    causes: Count
    others: Count
    unnamed: Count | None = None
    first: Score | None
    unseen: Score | None
    now: Score | None


class Diagnoses(Record):
    FILE = "doctor"

    batches: list[Batch]
    slowest_s: Seconds
    memory_mib: Count
    shipped_kib: Count | None = None  # of the doctor and what it knows; not in earlier records
    seconds_per_step: dict[str, Seconds]


class ProbeOutcome(Model):
    probe: str
    outcome: str


class ControlRow(Model):
    control: str
    title: str
    expected: list[str]
    reason: str = ""
    twin: str
    caught: bool = False
    false_alarm: bool = False
    control_lock: str = ""  # digests: empty in records that do not say
    twin_lock: str = ""
    patches: list[str] = Field(default_factory=list)
    on_control: list[ProbeOutcome]
    on_twin: list[ProbeOutcome]


class Controls(SuiteRecord):
    FILE = "controls"

    controls: Count
    caught: Count
    false_alarms: Count
    rows: list[ControlRow]


class FalseAlarm(Model):
    seed: int
    probe: str
    reason: str | None


class Distribution(Model):
    """The values of one number over several runs."""

    name: str
    n: Count
    min: float
    median: float
    max: float


class MedianSeconds(Model):
    median: Seconds


class ProbeRuns(Model):
    seconds: MedianSeconds
    measurements: list[Distribution]


class FalseAlarms(SuiteRecord):
    FILE = "false-alarms"

    stack: str
    runs: Count
    runs_on_one_core: Count = 0
    seeds: str
    side_by_side: Count
    cores: Count
    false_alarms: list[FalseAlarm]
    probes: dict[str, ProbeRuns]

    def distributions(self, probe: str) -> dict[str, Distribution]:
        """A probe's numbers by name."""
        return {row.name: row for row in self.probes[probe].measurements} if probe in self.probes else {}


class Tally(Model):
    mutants: Count
    killed: Count
    rate: float


class Mutant(Model):
    id: str
    outcome: str
    why: str = ""
    reason_survived: str | None = None


class Mutants(SuiteRecord):
    FILE = "mutants"

    total: Tally
    packages: dict[str, Tally]
    mutants: list[Mutant]
    equivalent: list[str] = []


class SystematicMutants(Mutants):
    FILE = "mutants-systematic"


class SuiteSpeed(SuiteRecord):
    FILE = "suite-speed"

    probes: Count
    wall_s: Seconds
    imports_s: Seconds
    compute_s: Seconds
    overhead: float
    fresh_s: Seconds
    fresh_over_suite: float


class Layer(Model):
    name: str
    digest: str
    bytes: Count
    files_bytes: Count | None
    bytecode_bytes: Count | None = None  # of its bytecode, compressed by itself; None in earlier records


class WithoutGpu(Model):
    """What ran in an image for GPUs on a machine without one."""

    suite: str
    passed: list[str]
    not_run: dict[str, str]
    red: dict[str, str]


class Image(Model):
    date: str
    machine: str
    command: str
    lock: str
    inputs: str
    manifest: str
    buildkit: str
    bytes: Bytes
    files_bytes: Bytes
    layers: list[Layer]
    without_gpu: WithoutGpu | None = None


class Images(File):
    """One row for each image: they are measured one at a time. A stack for two platforms has two."""

    FILE = "images"

    images: dict[str, Image]


class Way(Model):
    """A way to build the same image; seconds of each repetition."""

    cold_s: list[Seconds]
    bump_s: list[Seconds]
    bytes: Bytes
    pulled_bytes: Count


class Builds(Record):
    FILE = "bench"

    stack: str
    bumped: str
    ways: dict[str, Way]
    limits: dict[str, float]
    first_step_s: dict[str, list[Seconds]]
    ratios: dict[str, float]

    @model_validator(mode="after")
    def _measured(self) -> Builds:
        if missing := self.limits.keys() - self.ratios.keys():
            raise ValueError(f"no ratio was measured of {', '.join(sorted(missing))}")
        return self
