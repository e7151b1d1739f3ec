"""A recertification: what an upgrade was, how it ended, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from builder.bisect.packages import BreakingChanges
from builder.certify.certificate import ProbeResult, Statement
from builder.certify.transcript import Event
from builder.image.buildx import BuildStep
from builder.lock.audit import AuditFinding
from builder.lock.lockfile import Lock
from builder.trajectory.verdict import Verdict
from builder.upgrade.compare import Regression
from builder.upgrade.difference import Difference

Ending = Literal["green", "nothing", "unresolvable", "unsound", "not built", "red", "worse", "strays"]


@dataclass
class Recertification:
    """An upgrade of a stack. `explanation` is what uv or the build printed; `findings` are the audit's."""

    name: str
    outcome: Ending
    old: Lock
    new: Lock | None = None
    difference: Difference | None = None
    explanation: str = ""
    findings: list[AuditFinding] = field(default_factory=list)
    statement: Statement | None = None
    before: Statement | None = None  # the last certificate of the same device and engine
    worse: list[Regression] = field(default_factory=list)
    training: Verdict | None = None  # of the golden trajectories
    not_trained: str = ""  # why they were not compared
    picture: Path | None = None  # of the comparison
    breaking: BreakingChanges | None = None
    no_culprit: str = ""  # why none was found
    reproducer: Path | None = None
    advisory: Path | None = None
    report: Path | None = None

    @property
    def red(self) -> list[ProbeResult]:
        """The probes that did not pass."""
        probes = self.statement.predicate.probes if self.statement else []
        return [probe for probe in probes if probe.outcome not in ("passed", "not-run")]


@dataclass(frozen=True)
class Progress:
    """Where steps of the work and events of the suite are reported."""

    step: Callable[[BuildStep], None]
    event: Callable[[Event], None]

    def say(self, what: str) -> None:
        """Report a step without a count."""
        self.step(BuildStep(0, 0, what))
