"""The certificate: an in-toto statement of what ran, where it ran, and what was measured; and its sibling, the report.

A certificate is issued only when every probe that applies has passed. A run that failed leaves a report of the same
shape in .vetted/reports/, and no certificate.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from builder.base import canonical, reading
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import refusal

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# The resource that lists where the environment differed from the lock. A certificate has none.
DIFFERENCES = "differences"
# Of its file, without .json. It is shown, in commands too, and it is the name of a page.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
INPUTS = "inputs"  # the resource with the digest of everything that an image is made of
Differences = Mapping[str, str | list[str]]
# The bytes that a certificate is about do not age. What it cannot see does: the drivers and kernels under the image,
# the faults that are found later, the suite that learns about them. Those change within a quarter; running the suite
# again takes minutes.
LIFETIME = datetime.timedelta(days=90)
MOST = sys.float_info.max
Outcome = Literal["passed", "failed", "crashed", "timeout", "oom", "not-run"]


def _day(value: object) -> object:
    """A day is written 2026-11-21; pydantic would take numbers and times of day as well."""
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date | str):
        raise ValueError("must be a day, such as 2026-11-21")
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError(f"{value!r} is not a day, such as 2026-11-21")
    return value


Day = Annotated[datetime.date, BeforeValidator(_day)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _ordinary(value: float | int | str | bool) -> float | int | str | bool:
    """JSON's integers have no end; what computes with a number, or shows it, has one."""
    if isinstance(value, int) and abs(value) > MOST:
        raise ValueError("must not be larger than any float")
    return value


Value = Annotated[float | int | str | bool, AfterValidator(_ordinary)]


class DigestSet(_Model):
    sha256: Digest


class Resource(_Model):
    """in-toto ResourceDescriptor."""

    name: str
    digest: DigestSet | None = None
    annotations: dict[str, str | int | list[str] | None] | None = None


class Measurement(_Model):
    """One number of a probe, its bound and the reason for the bound. A bound is at_most, at_least or equals."""

    name: str
    value: Value | None = None
    unit: str = ""
    bound: dict[Literal["at_most", "at_least", "equals"], Value] | None = None
    why: str = ""
    ok: bool = True
    headline: bool = False


class ProbeResult(_Model):
    """The result of a probe. `matters`: what its failure does to a training run, in the probe's own words."""

    name: str
    matters: str | None = None
    outcome: Outcome
    reason: str | None = None
    measurements: list[Measurement] = []
    seconds: float = 0.0
    peak_memory_mib: float = 0.0
    log_tail: str | None = None

    @property
    def headline(self) -> Measurement | None:
        return next((m for m in self.measurements if m.headline), None)


class Predicate(_Model):
    """in-toto test-result v0.1; `issued`, `expires`, `notRun` and `probes` are this project's additions.

    A report has no dates. Nor has a certificate from before certificates expired.
    """

    result: Literal["PASSED", "FAILED"]
    issued: Day | None = None
    expires: Day | None = None
    configuration: list[Resource]
    passedTests: list[str]  # noqa: N815  (in-toto's names)
    failedTests: list[str]  # noqa: N815
    notRun: dict[str, str]  # noqa: N815
    probes: list[ProbeResult]

    @model_validator(mode="after")
    def _dated_whole(self) -> Predicate:
        if (self.issued is None) != (self.expires is None):
            raise ValueError("`issued` and `expires` go together")
        return self


class Statement(_Model):
    """in-toto Statement v1."""

    type_: Annotated[Literal["https://in-toto.io/Statement/v1"], Field(alias="_type")] = STATEMENT  # type: ignore[assignment]
    subject: list[Resource]
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"] = PREDICATE  # type: ignore[assignment]  # noqa: N815
    predicate: Predicate

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)

    def to_json(self) -> str:
        return canonical.dumps(self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @property
    def hardware(self) -> str:
        """The hardware class that it was earned on."""
        return str((self.resource("hardware").annotations or {}).get("class"))

    @property
    def key(self) -> tuple[str, str, str]:
        """Subject, suite and hardware class: a run with the same key shows the same."""
        suite = self.resource("suite").digest
        subject = self.subject[0].digest if self.subject else None
        return (subject.sha256 if subject else "", suite.sha256 if suite else "", self.hardware)

    def resource(self, name: str) -> Resource:
        return next((r for r in self.predicate.configuration if r.name == name), Resource(name=name))

    @property
    def earned(self) -> bool:
        """Whether it may be a certificate: everything passed, and the environment was exactly the lock."""
        return self.predicate.result == "PASSED" and not self.resource(DIFFERENCES).annotations

    def dated(self, day: datetime.date) -> Statement:
        """The same statement, issued on that day."""
        dates = {"issued": day, "expires": day + LIFETIME}
        return self.model_copy(update={"predicate": self.predicate.model_copy(update=dates)})

    def undated(self) -> Statement:
        """The same statement as a report, which has no dates."""
        return self.model_copy(
            update={"predicate": self.predicate.model_copy(update={"issued": None, "expires": None})}
        )

    def lapsed(self, day: datetime.date) -> str | None:
        """Why it is no longer valid on that day; None while it is, which includes the day on which it expires."""
        expires = self.predicate.expires
        if expires is None:
            return "has no expiry date"
        return f"expired on {expires}" if day > expires else None


def today() -> datetime.date:
    """Today in UTC: the same day everywhere, for certificates that are issued and expire."""
    return datetime.datetime.now(datetime.UTC).date()


def bare(digest: str) -> DigestSet:
    return DigestSet(sha256=digest.removeprefix("sha256:"))


def statement(
    *, subject: Resource, lock: str, suite: str, hardware: Hardware, engine: dict[str, str], python: str,
    probes: list[ProbeResult], differences: Differences | None = None, inputs: str | None = None,
) -> Statement:  # fmt: skip
    """The statement about a run. PASSED means: something ran, and every probe that could run has passed.

    `inputs`: the digest of everything that the image is made of, if the subject is an image.
    """
    passed = [probe.name for probe in probes if probe.outcome == "passed"]
    not_run = {probe.name: probe.reason or "" for probe in probes if probe.outcome == "not-run"}
    failed = [probe.name for probe in probes if probe.outcome not in ("passed", "not-run")]
    machine: dict[str, str | int | list[str] | None] = {
        "class": hardware.hardware_class, "cpu": hardware.name, "cores": hardware.cores,
        "gpus": list(hardware.gpus), "driver": hardware.driver,
    }  # fmt: skip
    return Statement(
        subject=[subject],
        predicate=Predicate(
            result="PASSED" if passed and not failed else "FAILED",
            configuration=[
                Resource(name="lock", digest=bare(lock)),
                Resource(name="suite", digest=bare(suite)),
                *([Resource(name=INPUTS, digest=bare(inputs))] if inputs else []),
                Resource(name="hardware", annotations={k: v for k, v in machine.items() if v not in (None, [])}),
                Resource(name="engine", annotations={**engine}),
                Resource(name="python", annotations={"version": python}),
                *([Resource(name=DIFFERENCES, annotations={**differences})] if differences else []),
            ],
            passedTests=passed,
            failedTests=failed,
            notRun=not_run,
            probes=probes,
        ),
    )


def path(project: Project, stack: str, device: str, engine: str) -> Path:
    return project.stack_dir(stack) / "certificates" / f"{device}-{engine}.json"


def report_path(project: Project, stack: str, device: str, engine: str) -> Path:
    return project.state / "reports" / f"{stack}-{device}-{engine}.json"


def parse(content: bytes) -> Statement:
    """A statement, written exactly as this tool writes it, byte for byte. Raises ValueError.

    The same statement can be written as JSON in many ways, and two readers may understand some of them differently: a
    key that comes twice, or in other case. All but one are refused.
    """
    statement = Statement.model_validate_json(content)
    if statement.to_json().encode() != content:
        raise ValueError("it is not written as this tool writes it")
    return statement


def read(path: Path) -> Statement:
    """Read a certificate or report. Raises BadInputError when it is not one."""
    try:
        return parse(reading.content(path, str(path)))
    except (ValueError, RecursionError) as error:
        raise refusal.unreadable(path, error) from error


def files(project: Project, stack: str) -> list[Path]:
    """The files of every certificate of a stack, each named `<device>-<engine>.json`."""
    return sorted((project.stack_dir(stack) / "certificates").glob("*.json"))


def of_stack(project: Project, stack: str) -> dict[str, Statement]:
    """Every certificate of a stack, by `<device>-<engine>`."""
    return {file.stem: read_of_stack(project, file) for file in files(project, stack)}


def read_of_stack(project: Project, file: Path) -> Statement:
    """Read a file among the certificates of a stack. Raises BadInputError when it is none."""
    if (statement := read(file)).resource(DIFFERENCES).annotations:
        raise refusal.misplaced(project.relative(file))
    return statement


def schema() -> dict[str, Any]:
    """The JSON schema of certificates, which is committed in docs/."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Statement.model_json_schema(by_alias=True)}
