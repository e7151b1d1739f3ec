"""The run certificate as `vetted train` writes it, and the monitor's table of checks by which it is judged."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from builder.certify.certificate import Resource


class _Model(BaseModel):
    # Strict: other programs read no number in a text or a yes.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)


class Check(_Model):
    """What came of a check in the run."""

    name: str
    column: str
    outcome: Literal["passed", "advice", "alarm"]
    at_most: float
    worst: float | str | None = None
    steps: int
    findings: int
    first: int | None = None


class RunResource(_Model):
    """in-toto ResourceDescriptor; annotations are whatever the run noted."""

    name: str
    digest: dict[str, str] | None = None
    annotations: dict[str, Any] | None = None

    @property
    def sha256(self) -> str | None:
        return (self.digest or {}).get("sha256")


class Predicate(_Model):
    """in-toto test-result v0.1; `checks` and what follows are this project's additions."""

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: list[RunResource]
    passedTests: list[str]  # noqa: N815  (in-toto's names)
    warnedTests: list[str]  # noqa: N815
    failedTests: list[str]  # noqa: N815
    notRun: dict[str, str]  # noqa: N815
    checks: list[Check]
    steps: dict[str, int]
    monitorFailure: str  # noqa: N815
    blindSpots: list[str]  # noqa: N815

    def resource(self, name: str) -> RunResource | None:
        """The resource of this name."""
        return next((entry for entry in self.configuration if entry.name == name), None)

    @property
    def image(self) -> tuple[str, str] | None:
        """Name and digest of the image, where the run knew it."""
        for entry in self.configuration:
            if (entry.annotations or {}).get("role") == "image" and entry.sha256:
                return entry.name, f"sha256:{entry.sha256}"
        return None


class Row(BaseModel):
    """A check in the monitor's table, as far as it is read. `needs`, `recovers`: see runtime/monitor/table.py."""

    name: str
    column: str
    asks: str
    level: Literal["advice", "alarm"]
    at_most: float
    needs: str = ""
    recovers: bool = False

    def broken_by(self, value: float) -> bool:
        """Whether the value breaks the bound. One that is no number does."""
        return math.isnan(value) or value > self.at_most


class Table(NamedTuple):
    """The monitor's table of checks, its digest, and what the monitor cannot see in any run."""

    rows: list[Row]
    digest: str
    blind: tuple[str, ...]


class RunStatement(_Model):
    """in-toto Statement v1 about the files of a run, without its `_type`."""

    subject: list[Resource]
    predicateType: Literal["https://in-toto.io/attestation/test-result/v0.1"]  # noqa: N815
    predicate: Predicate
