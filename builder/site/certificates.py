"""The certificates of a stack as the page shows them: what each is worth today, and the earlier ones."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from builder.base import errors, reading
from builder.base.project import Project
from builder.certify import assessment as assessing
from builder.certify import refusal
from builder.certify.assessment import Assessment, Assessments
from builder.certify.certificate import Statement
from builder.certify.judgement import Terms
from builder.lock.lockfile import Lock
from builder.site import history

# Nothing speaks against it; only its age does; something else does; another took its place.
State = Literal["certified", "expired", "does not hold", "earlier"]
BEST_FIRST: tuple[State, ...] = ("certified", "expired", "does not hold")  # of those that are there today


@dataclass(frozen=True)
class Commit:
    """Where an earlier certificate was read: a commit of the project's repository, and its day."""

    id: str
    day: str


@dataclass(frozen=True, eq=False)
class Certificate:
    """A certificate of a stack. `doubts`: what speaks against it today. `source`: its file, or its bytes where git has
    them; twenty thousand files are not kept in memory."""

    stack: str
    assessment: Assessment
    doubts: Sequence[str]
    state: State
    source: Path | bytes
    commit: Commit | None = None

    @property
    def name(self) -> str:
        """Of its file, unique in the stack."""
        return self.assessment.name

    @property
    def page(self) -> str:
        return f"certificates/{self.stack}/{self.name}.html"

    @property
    def file(self) -> str:
        """Its copy on the site: the bytes that were judged."""
        return f"certificates/{self.stack}/{self.name}.json"

    @property
    def content(self) -> bytes:
        """The bytes that were judged. Raises VettedError when the file has changed since."""
        if isinstance(self.source, bytes):
            return self.source
        content = reading.content(self.source, str(self.source))
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise errors.VettedError(
                f"{self.source} changed while the site was made",
                cause="an editor, git or another vetted wrote there", next_step="run this again",
            )  # fmt: skip
        return content

    @property
    def statement(self) -> Statement:
        return _statement(self)

    @property
    def sha256(self) -> str:
        return self.assessment.sha256

    @property
    def hardware(self) -> str:
        return self.assessment.hardware

    @property
    def about(self) -> str:
        """What it is about: an image, or a lock alone."""
        return self.assessment.about

    @property
    def subject(self) -> str:
        """The digest that it is about; empty where it names none."""
        return self.assessment.subject

    @property
    def numbers(self) -> dict[tuple[str, str], tuple[float, str]]:
        """Each number by its probe and its name, with its JSON pointer in the file."""
        return _numbers(self)


@lru_cache(maxsize=32)
def _statement(entry: Certificate) -> Statement:
    # An earlier one from git may be written in another way than today's tool writes.
    return Statement.model_validate_json(entry.content)


@lru_cache(maxsize=256)
def _numbers(entry: Certificate) -> dict[tuple[str, str], tuple[float, str]]:
    return {
        (probe.name, measurement.name): (float(measurement.value), f"/predicate/probes/{i}/measurements/{j}/value")
        for i, probe in enumerate(entry.statement.predicate.probes)
        for j, measurement in enumerate(probe.measurements)
        if isinstance(measurement.value, int | float) and not isinstance(measurement.value, bool)
    }


@dataclass(frozen=True)
class Unreadable:
    """A file among the certificates that is none."""

    stack: str
    name: str
    problem: str


def current(lock: Lock, judge: Assessments) -> tuple[list[Certificate], list[Unreadable]]:
    """Every certificate of a stack, judged; and the files beside them that are no certificates."""
    certificates: list[Certificate] = []
    unreadable: list[Unreadable] = []
    for path, assessment in judge.files(lock):
        if isinstance(assessment, errors.BadInputError):
            unreadable.append(Unreadable(lock.name, path.stem, assessment.what.replace(str(path), path.name)))
        elif isinstance(assessment, OSError | RecursionError | ValueError):
            problem = refusal.why(assessment).replace(str(path), path.name)
            unreadable.append(Unreadable(lock.name, path.stem, problem))
        elif isinstance(assessment, Exception):
            raise assessment
        else:
            certificates.append(_today(lock.name, path, assessment, judge.terms(lock).day))
    return certificates, unreadable


def _today(stack: str, path: Path, assessment: Assessment, day: datetime.date) -> Certificate:
    doubts = assessment.doubts(day)
    state: State = "certified"
    if doubts:
        state = "does not hold" if assessment.standing(day) else "expired"
    return Certificate(stack, assessment, doubts, state, path)


def earlier(project: Project, terms: Terms, today: Iterable[Certificate], scratch: Path) -> list[Certificate]:
    """The earlier certificates that git has, the newest first. Those of a form that is no longer read are left out."""
    stack = terms.lock.name
    known = {entry.sha256 for entry in today}
    answer = []
    for version in history.versions(project.stack_dir(stack) / "certificates", scratch):
        digest = hashlib.sha256(version.content).hexdigest()
        if digest in known:
            continue
        known.add(digest)
        try:
            statement = Statement.model_validate_json(version.content)
        except ValueError:
            continue
        name, commit = f"{version.name}-{version.commit[:10]}", Commit(version.commit, version.day)
        assessment = assessing.summary(name, version.content, statement, terms)
        answer.append(Certificate(stack, assessment, assessment.doubts(terms.day), "earlier", version.content, commit))
    return answer


def best(entries: Iterable[Certificate]) -> Certificate | None:
    """The best of today's certificates, and of several as good the one that lasts longest."""
    return min(
        entries,
        key=lambda entry: (BEST_FIRST.index(entry.state), -(entry.assessment.expires or datetime.date.min).toordinal()),
        default=None,
    )


def span(entry: Certificate) -> tuple[datetime.date, datetime.date] | None:
    """The days from which to which a certificate says that it is valid."""
    assessment = entry.assessment
    return (assessment.issued, assessment.expires) if assessment.issued and assessment.expires else None
