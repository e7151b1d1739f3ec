"""Judging a certificate: the only place that decides whether a statement proves what it claims.

A statement is not trusted with anything that can be checked. The probes, their bounds and where they apply come from
the project's own suite; every outcome is derived again from the numbers; lock, inputs, versions and advisories are
today's. What nobody can check again remains a claim of whoever ran the suite: the numbers within their bounds, seconds,
memory, the names of kernel and processor. Only a signature vouches for those.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeGuard

from builder.base import aliases, sources, text
from builder.base.project import Project
from builder.certify import catalogue, certificate, dates, description
from builder.certify.catalogue import Probe
from builder.certify.certificate import Measurement, ProbeResult, Statement
from builder.image import target
from builder.intent import advisory as advisories
from builder.intent.advisory import Advisory
from builder.lock.lockfile import Lock

LARGEST = sys.float_info.max
SLACK = 60.0  # seconds that the runner may need to end a probe after its timeout


@dataclass(frozen=True)
class Terms:
    """What certificates of a lock are judged by: the lock, the suite, the advisories and the day, as of today."""

    project: Project
    lock: Lock
    suite: str  # its digest
    probes: Sequence[Probe]
    advisories: Sequence[Advisory]
    day: datetime.date

    @property
    def device(self) -> str:
        return self.lock.stack.device

    @cached_property
    def inputs(self) -> str:
        """The digest of everything that an image of the lock would be made of today."""
        return target.inputs_of(self.project, self.lock)

    @cached_property
    def matching(self) -> Sequence[Advisory]:
        """The advisories that match the lock in some context, or with certainty."""
        return [advisory for advisory in self.advisories if advisory.matches(self.lock.versions) != "no"]


def terms(project: Project, lock: Lock, smoke: Path | None = None) -> Terms:
    """Today's terms for certificates of a lock. `smoke`: a copy of the suite, in place of the project's own."""
    smoke = smoke or project.smoke
    return Terms(
        project, lock, sources.digest(smoke), catalogue.read(smoke), advisories.load_all(project), certificate.today()
    )


def doubts(statement: Statement, terms: Terms, image: str | None = None) -> list[str]:
    """The doubts about a certificate, a sentence each; nothing if it is valid. `image`: its subject's digest."""
    predicate = statement.predicate
    return [*lasting(statement, terms, image), *dates.doubts(predicate.issued, predicate.expires, terms.day)]


def lasting(statement: Statement, terms: Terms, image: str | None = None) -> list[str]:
    """The doubts that hold on any day: all but those about its dates. It never looks at the day of the terms."""
    sentences = [*_subject(statement, terms, image), *_origin(statement, terms)]
    if not sentences:  # the results of another suite or lock cannot be judged by this one
        sentences += [*description.doubts(statement, terms.lock), *_results(statement, terms)]
    return [*sentences, *_withdrawals(statement, terms)]


def is_valid(statement: Statement, terms: Terms, image: str | None = None) -> bool:
    """Whether there is no doubt about a certificate."""
    return not doubts(statement, terms, image)


def is_of_today(statement: Statement, terms: Terms) -> bool:
    """Whether lock, suite and inputs are today's, so that the suite at hand can judge its numbers."""
    return not any(_origin(statement, terms))


def is_earlier(statement: Statement, terms: Terms) -> bool:
    """Whether it speaks of today's lock, but of another suite or of an image with other inputs.

    Those decided then. What it says is a claim now: today's suite cannot judge it.
    """
    expected = _expected(statement, terms)
    differing = {what for what, digest in expected.items() if _digest_of(statement, what) != digest}
    return (
        _names(statement) == [*expected, *description.PARTS]
        and statement.predicate.result == "PASSED"
        and bool(differing)
        and "lock" not in differing
        and not any(description.doubts(statement, terms.lock))
        and not any(_withdrawals(statement, terms))
    )


# --- subject, lock, suite and inputs -------------------------------------------------------------------------------


def _subject(statement: Statement, terms: Terms, image: str | None) -> Iterator[str]:
    if len(statement.subject) != 1:
        yield f"it speaks of {len(statement.subject)} subjects, not of one"
        return
    subject = statement.subject[0]
    digest = f"sha256:{subject.digest.sha256}" if subject.digest else "nothing"
    host = description.engine(statement) == "host"
    if host:
        expected, name = terms.lock.digest, f"lockfiles/{terms.lock.name}"
    else:
        expected, name = image or digest, target.tag(terms.lock, terms.inputs)
    if image is not None and host:
        yield "it was earned on a host, not in the image"
    elif digest != expected:
        yield f"it speaks of another subject\nexpected {expected}\ngot      {digest}"
    elif subject.digest is None or subject.annotations is not None or subject.name != name:
        yield f"it speaks of {text.line(subject.name)}, not of {name}"


def _origin(statement: Statement, terms: Terms) -> Iterator[str]:
    """Is it about this lock, this suite and these inputs, and nothing else?"""
    digests, names = _expected(statement, terms), _names(statement)
    if certificate.DIFFERENCES in names:
        yield "it is the report of a run that was not of the lock"
    elif names != [*digests, *description.PARTS]:
        expected_names = ", ".join([*digests, *description.PARTS])
        yield f"its configuration names {text.line(', '.join(names)) or 'nothing'}, not {expected_names}"
    for what, expected in digests.items():
        got = _digest_of(statement, what)
        if got != expected:
            changed = "it was earned with other inputs than today's" if what == certificate.INPUTS else ""
            yield f"{changed or f'it was earned with another {what}'}\nexpected {expected}\ngot      {got}"
        elif statement.resource(what).annotations is not None:
            yield f"its {what} says more than a digest"


def _expected(statement: Statement, terms: Terms) -> dict[str, str]:
    """Today's digest of each thing that a certificate of this engine names by its digest."""
    digests = {"lock": terms.lock.digest, "suite": terms.suite}
    if description.engine(statement) != "host":
        digests[certificate.INPUTS] = terms.inputs
    return digests


def _names(statement: Statement) -> list[str]:
    return [resource.name for resource in statement.predicate.configuration]


def _digest_of(statement: Statement, what: str) -> str:
    digest = statement.resource(what).digest
    return f"sha256:{digest.sha256}" if digest else "none"


# --- results -------------------------------------------------------------------------------------------------------


def _results(statement: Statement, terms: Terms) -> Iterator[str]:
    predicate = statement.predicate
    names, expected = [probe.name for probe in predicate.probes], [probe.name for probe in terms.probes]
    if names != expected:
        missing = [name for name in expected if name not in names]
        extra = [name for name in names if name not in expected]
        differences = [f"lacks {', '.join(missing)}"] if missing else []
        differences += [f"has {text.line(', '.join(extra))}"] if extra else []
        yield f"its probes are not those of the suite: it {' and '.join(differences) or 'repeats or reorders them'}"
        return
    passed = [probe.name for probe in predicate.probes if probe.outcome == "passed"]
    not_run = {probe.name: probe.reason for probe in predicate.probes if probe.outcome == "not-run"}
    if predicate.result != "PASSED" or not passed:
        yield "it is the report of a run that failed"
    if predicate.passedTests != passed or predicate.failedTests or [*predicate.notRun.items()] != [*not_run.items()]:
        yield "its lists of tests contradict its probes"
    gpus = (statement.resource("hardware").annotations or {}).get("gpus")
    for probe, result in zip(terms.probes, predicate.probes, strict=True):
        yield from (
            f"{probe.name}: {doubt}"
            for doubt in _probe(probe, result, terms, len(gpus) if isinstance(gpus, list) else 0)
        )


def _probe(probe: Probe, result: ProbeResult, terms: Terms, gpus: int) -> Iterator[str]:
    if result.matters != probe.matters:
        yield "it says something else than the suite of why it matters"
    if not 0 <= result.seconds <= probe.timeout_s + SLACK or not 0 <= result.peak_memory_mib < 2**24:
        yield f"it took {result.seconds:g} s and {result.peak_memory_mib:g} MiB, which cannot be"
    if result.outcome == "passed":
        if result.reason is not None or result.log_tail:
            yield "it passed, and gives a reason or a log as if it had not"
        yield from _measurements(probe, result.measurements)
    elif result.outcome != "not-run":
        yield f"it did not pass: {result.outcome}"
    elif result.measurements or result.log_tail:
        yield "it was not run, and has measurements or a log"
    elif not _excused(probe, result.reason or "", terms, gpus):
        yield f"it was not run for a reason that does not hold here: {result.reason!r}"


def _measurements(probe: Probe, measurements: Sequence[Measurement]) -> Iterator[str]:
    if [measurement.name for measurement in measurements] != [bound.name for bound in probe.bounds]:
        yield "its measurements are not those that the suite asks for"
        return
    for bound, measurement in zip(probe.bounds, measurements, strict=True):
        name, value, limits = measurement.name, measurement.value, (measurement.bound or {}).values()
        copied = (measurement.unit, measurement.bound, measurement.why, measurement.headline)
        if copied != (bound.unit, bound.bound, bound.why, bound.headline) or not all(map(_number, limits)):
            yield f"the bound of {name} is not the suite's"
        if not _number(value):
            yield f"{name} is {str(value)[:40]!r}, which is no number"
        elif not bound.holds(value):
            yield f"{name} is {value:g}, outside its bound"
        elif not measurement.ok:
            yield f"{name} is within its bound, and marked as outside"


def _number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number: to Python a bool is an int, and an int may be larger than any float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST <= value <= LARGEST


def _excused(probe: Probe, reason: str, terms: Terms, gpus: int) -> bool:
    """Can it be true that the probe did not apply there, for that reason?"""
    if match := re.fullmatch(r"not installed: (.+)", reason):
        installed = terms.lock.versions.keys()
        absent = [name for name in probe.needs if installed.isdisjoint(aliases.providers(name))]
        return bool(absent) and match[1] == ", ".join(absent)
    if terms.device == "cuda" and gpus < probe.gpus:
        return reason == f"needs {probe.gpus} GPU(s), found {gpus}"
    return any(skip.reason == reason and skip.applies(terms.device, dict(terms.lock.versions)) for skip in probe.skips)


# --- advisories ----------------------------------------------------------------------------------------------------


def _withdrawals(statement: Statement, terms: Terms) -> Iterator[str]:
    installed = terms.lock.versions
    for advisory in terms.matching:
        if withdraws(advisory, statement, installed):
            yield (
                f"withdrawn by {advisory.id} of {advisory.published}: {advisory.summary}; the way out: "
                f"{advisory.remedy}"
            )


def withdraws(advisory: Advisory, statement: Statement, installed: Mapping[str, str]) -> bool:
    """Whether an advisory withdraws a certificate. `installed`: the versions of the lock.

    An advisory that certainly matches always does, whatever its date: the suite missed a known failure. One that only
    matches in some context does when it is newer than the certificate and names a probe that the certificate lists as
    passed.
    """
    match, issued = advisory.matches(installed), statement.predicate.issued
    if match != "possible" or issued is None:
        return match == "certain"
    return advisory.published > issued and not set(advisory.probes).isdisjoint(statement.predicate.passedTests)
