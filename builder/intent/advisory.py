"""Advisories: version sets that are known to be bad. What they do, why, how to fix it, and how it is known.

advisories/<id>.toml has one each, in the shape of an OSV record (id, summary, details, aliases, references, published,
withdrawn) with what OSV has no fields for: such a fault lies in a *combination* of packages, and often shows only under
one launcher, ZeRO stage, quantisation or GPU.

    [[affected]]                      # several tables are alternatives; everything in one must be true
    packages = { trl = "==0.14.0", transformers = ">=4.52.1" }

    [affected.context]                # absent: the packages decide
    zero_stage = [3]
"""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from builder.base import errors, tomlfile
from builder.base.project import Project
from builder.base.text import word
from builder.base.tomlfile import Line, Table
from builder.intent import ranges
from builder.intent.conditions import Conditions
from builder.intent.ranges import Packages

ID = re.compile(r"VETTED-[0-9]{4}")
SEVERITIES = ("silent-wrong", "hang", "crash", "waste", "resolve")  # the worst first

# What the versions alone decide: it applies; it applies in some context; it does not.
Judgement = Literal["certain", "possible", "no"]
JUDGEMENTS: tuple[Judgement, ...] = ("certain", "possible", "no")


def _pattern(value: str) -> str:
    try:
        matches_nothing = re.compile(value).search("")
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    if matches_nothing:
        raise ValueError(f"{value!r} matches the empty text, and with it every log")
    return value


Names = list[Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]]
Text = Annotated[str, Field(min_length=1)]


class Reference(Table):
    """A link, with what it is, in OSV's words."""

    type: Literal["REPORT", "FIX", "INTRODUCED", "EVIDENCE", "DISCUSSION", "ARTICLE", "WEB"]
    url: Annotated[str, Field(pattern=r"^https://[^\s/]+\.[^\s/]+/\S+$")]


class Affected(Table):
    """One combination: every package in its range, in that context."""

    packages: Packages = Field(default_factory=dict)
    context: Conditions | None = None

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.packages and self.context is None:
            raise ValueError("is empty: name packages, a context, or both")
        return self

    def matches(self, versions: Mapping[str, str]) -> bool:
        """Are all its packages installed, in these versions? The context is not considered."""
        return ranges.match(self.packages, versions)


class Fix(Table):
    """One remedy. `packages` are free of the fault; `note` is what else to do, or what to do instead."""

    packages: Packages = Field(default_factory=dict)
    note: Line | None = None

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.packages and self.note is None:
            raise ValueError("is empty: name packages, a note, or both")
        return self

    def __str__(self) -> str:
        return ranges.text(self.packages) or self.note or ""


class Evidence(Table):
    """How it is known: executed by us (or read out of published packages), read elsewhere, or inferred."""

    kind: Literal["executed", "read", "inferred"]
    says: Line


class Advisory(Table):
    """One known-bad combination.

    `symptoms` are regular expressions that match the log of an affected run; a silent fault has none. `hints` are
    regular expressions for the words in which people describe it: they point to it and prove nothing. `probes` can
    detect it; `controls` show it.
    """

    id: Annotated[str, Field(pattern=f"^{ID.pattern}$")]
    summary: Line
    details: Text
    severity: Literal["silent-wrong", "hang", "crash", "waste", "resolve"]
    published: datetime.date
    withdrawn: datetime.date | None = None
    aliases: list[Line] = Field(default_factory=list)
    symptoms: list[Annotated[str, AfterValidator(_pattern)]] = Field(default_factory=list)
    hints: list[Annotated[str, AfterValidator(_pattern)]] = Field(default_factory=list)
    probes: Names = Field(default_factory=list)
    controls: Names = Field(default_factory=list)
    affected: Annotated[list[Affected], Field(min_length=1)]
    fix: Annotated[list[Fix], Field(min_length=1)]
    evidence: Evidence
    references: Annotated[list[Reference], Field(min_length=1)]

    def matches(self, versions: Mapping[str, str]) -> Judgement:
        """Does it apply to these installed versions (name -> version)? A withdrawn one does not."""
        combinations = [] if self.withdrawn else self.combinations(versions)
        if any(combination.context is None for combination in combinations):
            return "certain"
        return "possible" if combinations else "no"

    def combinations(self, versions: Mapping[str, str]) -> list[Affected]:
        """The combinations whose packages are all installed."""
        return [affected for affected in self.affected if affected.matches(versions)]

    def shows_in(self, log: str) -> bool:
        """Does one of its symptoms match a log?"""
        return any(re.search(symptom, log) for symptom in self.symptoms)

    @property
    def remedy(self) -> str:
        """The fixes in one line."""
        return ", or ".join(map(str, self.fix))


def names(project: Project) -> list[str]:
    """The id of every advisory of the project."""
    return sorted(path.stem for path in project.advisories.glob("*.toml"))


def load(project: Project, name: str) -> Advisory:
    """Read and validate advisories/<name>.toml. Raises BadInputError that names file, key and fix."""
    path = project.advisories / f"{name}.toml"
    where = project.relative(path)
    if not ID.fullmatch(name):
        raise errors.BadInputError(
            f"{name!r} is not an advisory's id, such as VETTED-0001",
            next_step=f"ls {word(project.relative(project.advisories))}",
        )
    try:
        advisory = tomlfile.read(Advisory, path, where)
    except FileNotFoundError as error:
        close = difflib.get_close_matches(name, names(project), n=1)
        raise errors.BadInputError(
            f"there is no advisory {name}: {where} does not exist" + (f"; did you mean {close[0]}?" if close else ""),
            next_step=f"ls {word(project.relative(project.advisories))}",
        ) from error
    if advisory.id != name:
        raise errors.BadInputError(
            f"{where}: `id`: {advisory.id} is not the name of the file", next_step=f"correct `id` in {word(where)}"
        )
    return advisory


def load_all(project: Project) -> list[Advisory]:
    """Every advisory of the project: the worst first, then by id. Raises BadInputError."""
    # One command loads them several times, and validating a hundred files takes a third of a second.
    changed = tuple(
        (path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for path in sorted(project.advisories.glob("*.toml"))
        for status in (path.stat(),)
    )
    return list(_load_all(project, changed))


@cache
def _load_all(project: Project, _changed: object) -> tuple[Advisory, ...]:
    advisories = (load(project, name) for name in names(project))
    return tuple(sorted(advisories, key=lambda advisory: (SEVERITIES.index(advisory.severity), advisory.id)))
