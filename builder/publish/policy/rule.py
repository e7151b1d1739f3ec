"""The rule of a policy, resolved: plain lists, which cosign, policy-controller and Kyverno are given as well.

It asks what a certificate alone can answer. Whether its numbers keep the suite's own bounds is for judgement.py, where
the suite is at hand; a cluster sees the bounds that the certificate names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from builder.base import sources, text
from builder.base.project import Project
from builder.certify import certificate, dates
from builder.certify.certificate import LIFETIME, Measurement, ProbeResult, Statement
from builder.intent import advisory as advisories
from builder.publish.policy import history
from builder.publish.policy.policyfile import PolicyFile

CONFIGURATION = ("lock", "suite", certificate.INPUTS, "hardware", "engine", "python")  # of a run in an image


@dataclass(frozen=True, order=True)
class Withdrawal:
    """An advisory that withdraws the certificates of a lock; with a date, only earlier ones that list a probe of these
    as passed."""

    lock: str
    advisory: str
    published: str = ""
    probes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Which images may run. Digests without their algorithm; `hardware` are whole words, of which one is enough."""

    keys: tuple[Path, ...]
    images: tuple[str, ...]
    suites: tuple[str, ...]
    hardware: tuple[str, ...]
    device: str | None
    withdrawn: tuple[str, ...]
    withdrawals: tuple[Withdrawal, ...]

    @property
    def patterns(self) -> tuple[str, ...]:
        """`hardware` as regular expressions for a lower-case text, which Python's `re` and Go's `regexp` read alike."""
        words = (re.sub(r"([.+()])", r"[\1]", word.lower()) for word in self.hardware)
        return tuple(f"(^|[^0-9a-z_]){word}([^0-9a-z_]|$)" for word in words)

    def doubts(self, statement: Statement, day: datetime.date) -> list[str]:
        """Why the image of a certificate may not run, a sentence for each reason; nothing if it may."""
        issued, expires = statement.predicate.issued, statement.predicate.expires
        by_date = dates.doubts(issued, expires, day)
        return [*self._origin(statement), *_results(statement), *by_date, *self._withdrawals(statement)]

    def _origin(self, statement: Statement) -> Iterator[str]:
        if len(statement.subject) != 1:
            yield f"it speaks of {len(statement.subject)} subjects, not of one"
        if tuple(resource.name for resource in statement.predicate.configuration) != CONFIGURATION:
            yield "it is not the certificate of a run in an image"
        if _digest(statement, "suite") not in self.suites:
            yield "it was earned with a suite that the policy does not accept"
        annotations = statement.resource("hardware").annotations or {}
        texts = [
            text for value in annotations.values() for text in (value if isinstance(value, list) else [str(value)])
        ]
        if self.hardware and not any(re.search(pattern, text.lower()) for pattern in self.patterns for text in texts):
            yield f"it was earned on {text.line(statement.hardware)}, not on {' or '.join(self.hardware)}"
        if self.device and bool(annotations.get("gpus")) != (self.device == "cuda"):
            without = "without" if self.device == "cuda" else "with"
            yield f"it was earned {without} a GPU, and the policy says {self.device}"

    def _withdrawals(self, statement: Statement) -> Iterator[str]:
        lock, issued = _digest(statement, "lock"), statement.predicate.issued
        if lock in self.withdrawn:
            yield "its lock is withdrawn by the policy"
        for withdrawal in self.withdrawals:
            if withdrawal.lock != lock:
                continue
            passed = not set(withdrawal.probes).isdisjoint(statement.predicate.passedTests)
            if not withdrawal.published or (passed and str(issued) < withdrawal.published):
                yield f"withdrawn by {withdrawal.advisory}"


def of(project: Project, policy: PolicyFile, folder: Path, scratch: Path) -> Rule:
    """The rule of a policy as of today; `folder` is that of the policy. Raises BadInputError."""
    suites = [*(history.suites(project, policy.suite_since, scratch) if policy.suite_since else ())]
    today = sources.digest(project.smoke)
    return Rule(
        tuple(folder / name for name in policy.signed_by),
        tuple(policy.images),
        tuple(_bare(suite) for suite in dict.fromkeys([*suites, today])),
        tuple(policy.hardware),
        policy.device,
        tuple(map(_bare, policy.withdrawn)),
        tuple(sorted(_withdrawals(project, scratch))),
    )


def _withdrawals(project: Project, scratch: Path) -> Iterator[Withdrawal]:
    """Of every lock for which an image may be deployed. A certificate that has expired needs no advisory against it."""
    known = advisories.load_all(project)
    oldest = certificate.today() - LIFETIME
    for digest, versions in {lock.digest: lock.versions for lock in history.locks(project, scratch)}.items():
        for advisory in known:
            match advisory.matches(versions):
                case "certain":
                    yield Withdrawal(_bare(digest), advisory.id)
                case "possible" if advisory.probes and advisory.published > oldest:
                    yield Withdrawal(_bare(digest), advisory.id, str(advisory.published), tuple(advisory.probes))


def _bare(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _digest(statement: Statement, name: str) -> str:
    resource = statement.resource(name)
    return resource.digest.sha256 if resource.digest else ""


def _results(statement: Statement) -> Iterator[str]:
    predicate = statement.predicate
    passed = [probe.name for probe in predicate.probes if probe.outcome == "passed"]
    if predicate.result != "PASSED" or predicate.failedTests or not passed:
        yield "it is the report of a run that failed"
    if predicate.passedTests != passed or any(probe.outcome not in ("passed", "not-run") for probe in predicate.probes):
        yield "its lists of tests contradict its probes"
    for probe in predicate.probes:
        yield from (
            text.line(f"{probe.name}: {measurement.name} is outside its bound") for measurement in _outside(probe)
        )


def _outside(probe: ProbeResult) -> Iterator[Measurement]:
    for measurement in probe.measurements:
        value, bound = measurement.value, measurement.bound or {}
        numbers = {key: limit for key, limit in bound.items() if _number(limit)}
        if (
            not measurement.ok
            or not _number(value)
            or len(numbers) != len(bound)
            or value > numbers.get("at_most", value)
            or value < numbers.get("at_least", value)
            or value != numbers.get("equals", value)
        ):
            yield measurement


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
