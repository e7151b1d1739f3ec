"""The certificates of a stack as the page shows them: what each is worth today, and the earlier ones."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from builder.base import errors, reading
from builder.base.project import Project
from builder.certify import certificate, judgement, standing
from builder.certify.certificate import Statement
from builder.certify.judgement import Terms
from builder.site import history

# Nothing speaks against it; only its age does; something else does; another took its place.
State = Literal["certified", "expired", "does not hold", "earlier"]
BEST_FIRST: tuple[State, ...] = ("certified", "expired", "does not hold")  # of those that are there today


@dataclass(frozen=True)
class Commit:
    """Where an earlier certificate was read: a commit of the project's repository, and its day."""

    id: str
    day: str


@dataclass(frozen=True)
class Certificate:
    """A certificate of a stack. `name`: of its file, unique in the stack. `doubts`: what speaks against it today."""

    stack: str
    name: str
    content: bytes
    statement: Statement
    doubts: Sequence[str]
    state: State
    commit: Commit | None = None

    @property
    def page(self) -> str:
        return f"certificates/{self.stack}/{self.name}.html"

    @property
    def file(self) -> str:
        """Its copy on the site: the bytes that were judged."""
        return f"certificates/{self.stack}/{self.name}.json"

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def hardware(self) -> str:
        return self.statement.hardware

    @property
    def about(self) -> str:
        """What it is about: an image, or a lock alone."""
        return "image" if self.statement.resource(certificate.INPUTS).digest else "lock"

    @property
    def subject(self) -> str:
        """The digest that it is about; empty where it names none."""
        subjects = self.statement.subject
        return f"sha256:{subjects[0].digest.sha256}" if subjects and subjects[0].digest else ""

    @cached_property
    def numbers(self) -> dict[tuple[str, str], tuple[float, str]]:
        """Each number by its probe and its name, with its JSON pointer in the file."""
        return {
            (probe.name, measurement.name): (float(measurement.value), f"/predicate/probes/{i}/measurements/{j}/value")
            for i, probe in enumerate(self.statement.predicate.probes)
            for j, measurement in enumerate(probe.measurements)
            if isinstance(measurement.value, int | float) and not isinstance(measurement.value, bool)
        }


@dataclass(frozen=True)
class Unreadable:
    """A file among the certificates that is none."""

    stack: str
    name: str
    problem: str


def current(project: Project, terms: Terms) -> tuple[list[Certificate], list[Unreadable]]:
    """Every certificate of a stack, judged; and the files beside them that are no certificates."""
    name = terms.lock.name
    certificates: list[Certificate] = []
    unreadable: list[Unreadable] = []
    for path in sorted((project.stack_dir(name) / "certificates").glob("*.json")):
        try:
            certificates.append(_judged(path, terms))
        except errors.BadInputError as error:
            unreadable.append(Unreadable(name, path.stem, error.what))
        except (OSError, RecursionError, ValueError) as error:
            unreadable.append(Unreadable(name, path.stem, str(error).splitlines()[0].replace(str(path), path.name)))
    return certificates, unreadable


def _judged(path: Path, terms: Terms) -> Certificate:
    content = reading.content(path, path.name)
    statement = certificate.parse(content)
    doubts = judgement.doubts(statement, terms)
    state: State = "certified"
    if doubts:
        state = "does not hold" if standing.doubts(statement, terms) else "expired"
    return Certificate(terms.lock.name, path.stem, content, statement, doubts, state)


def earlier(project: Project, terms: Terms, today: Iterable[Certificate], scratch: Path) -> list[Certificate]:
    """The earlier certificates that git has, the newest first. Those of a form that is no longer read are left out."""
    stack = terms.lock.name
    known = {entry.content for entry in today}
    answer = []
    for version in history.versions(project.stack_dir(stack) / "certificates", scratch):
        if version.content in known:
            continue
        known.add(version.content)
        try:
            statement = Statement.model_validate_json(version.content)
        except ValueError:
            continue
        name, commit = f"{version.name}-{version.commit[:10]}", Commit(version.commit, version.day)
        doubts = judgement.doubts(statement, terms)
        answer.append(Certificate(stack, name, version.content, statement, doubts, "earlier", commit))
    return answer


def span(entry: Certificate) -> tuple[datetime.date, datetime.date] | None:
    """The days from which to which a certificate says that it is valid."""
    predicate = entry.statement.predicate
    return (predicate.issued, predicate.expires) if predicate.issued and predicate.expires else None
