"""Errors that pass through Unsloth: it writes trainers of its own from TRL's, so its release must know that TRL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know.data import Knowledge

THROUGH = re.compile(
    r"unsloth_compiled_(?:cache|module)\w*|\b_?Unsloth[A-Z]\w*(?:Trainer|Config)\b"
    r"|(?:site|dist)-packages/unsloth(?:_zoo)?/|\bUnsloth: Please file a bug report"
)
WATCHED = ("trl", "transformers", "torch")  # what it rewrites, in the order of how often that breaks
UPPER = ("<", "<=", "==", "~=")


def passes_through_unsloth(case: Case) -> Iterator[Finding]:
    """What the installed Unsloth declares to need, and the release that names the TRL which is there."""
    match = THROUGH.search(case.error)
    if match is None or (case.environment.complete and case.version("unsloth") is None):
        return
    version = case.version("unsloth")
    release = _nearest(case.knowledge, version) if version else ""
    declared = _declared(case, release)
    outside = [name for name in declared if versions.within(declared[name], case.version(name) or "") is False]
    known = _first_that_knows(case, version)
    evidence = [f"the error says: {match.group()}"]
    if declared:
        words = ", ".join(f"{name}{_ends(range_)}" for name, range_ in declared.items())
        of = f"unsloth {version}" if release == version else f"unsloth {release}, the release next to {version},"
        evidence.append(f"{of} declares {words}")
    upgrade = "the newest unsloth and unsloth-zoo, both together"
    if known is not None:
        upgrade = f"unsloth>={known[0]} with its unsloth-zoo, the first that declares {known[1]}"
    yield Finding(
        rule="unsloth-range",
        title=f"the error passes through Unsloth{f' {version}' if version else ''}, which rewrites TRL's trainers",
        packages=case.versions("unsloth", *(name for name in WATCHED if case.version(name))),
        severity="crash",
        confidence="possible",
        evidence=evidence,
        remedy=[upgrade, *(f"{name}{declared[name]}, as this Unsloth declares" for name in outside),
                "remove the folder unsloth_compiled_cache: it keeps trainers that were written for other releases"],
        commands=["uv pip install --upgrade unsloth unsloth_zoo"] if not known and not outside else [],
        decide=["whether it fails in TRL's own trainer, too: leave `import unsloth` out"],
        links=["https://github.com/unslothai/unsloth-zoo/pull/1035"],
        shown=POINTS,
        weight=0.06,
    )  # fmt: skip


def _declared(case: Case, release: str) -> dict[str, str]:
    """The ranges that a release of Unsloth declares: from its metadata, else from those of published releases."""
    package = case.environment.packages.get("unsloth")
    lines = (
        package.requires
        if package is not None and package.requires
        else case.knowledge.requires("unsloth").get(release)
    )
    return _ranges(lines or ())


def _ranges(lines: Iterable[str]) -> dict[str, str]:
    ranges: dict[str, str] = {}
    for line in lines:
        need = versions.requirement(line.strip()) if "extra ==" not in line else None
        if need is not None and aliases.normalise(need.name) in WATCHED and str(need.specifier):
            ranges.setdefault(aliases.normalise(need.name), str(need.specifier))
    return {name: ranges[name] for name in WATCHED if name in ranges}


def _nearest(knowledge: Knowledge, version: str) -> str:
    """The last release that was read up to a version; "" for none."""
    older = [release for release in knowledge.requires("unsloth") if versions.allows(f"<={version}", release)]
    return max(older, key=lambda release: versions.parse(release) or versions.Version("0"), default="")


def _first_that_knows(case: Case, version: str | None) -> tuple[str, str] | None:
    """The first later release that declares a range with an end, and the TRL that is there in it.

    A range without an end says nothing: its release may have been made before that TRL.
    """
    name = next((name for name in WATCHED if case.version(name)), "")
    releases = case.knowledge.requires("unsloth")
    for release in sorted(releases, key=lambda release: versions.parse(release) or versions.Version("0")):
        if version is not None and versions.within(f">{version}", release) is not True:
            continue
        range_ = _ranges(releases[release]).get(name, "")
        if _names(range_, case.version(name) or ""):
            return release, f"{name}{_ends(range_)}"
    return None


def _names(range_: str, version: str) -> bool:
    """Is a version in a range that has an end?"""
    ended = any(clause.operator in UPPER for clause in versions.specifiers(range_) or ())
    return ended and versions.allows(range_, version)


def _ends(range_: str) -> str:
    """A range without the single releases that it leaves out."""
    return ",".join(str(clause) for clause in versions.specifiers(range_) or () if clause.operator != "!=")
