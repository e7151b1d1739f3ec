"""Versions and ranges, compared by `packaging` or by the copy of it that pip carries; never by rules of our own."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

try:
    from packaging.markers import InvalidMarker, UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion, Version
except ImportError:  # a bare Python with pip
    from pip._vendor.packaging.markers import (  # type: ignore[assignment]
        InvalidMarker,
        UndefinedComparison,
        UndefinedEnvironmentName,
    )
    from pip._vendor.packaging.requirements import InvalidRequirement, Requirement  # type: ignore[assignment]
    from pip._vendor.packaging.specifiers import InvalidSpecifier, SpecifierSet  # type: ignore[assignment]
    from pip._vendor.packaging.version import InvalidVersion, Version  # type: ignore[assignment]

__all__ = [
    "ANY",
    "InvalidMarker",
    "InvalidRequirement",
    "Requirement",
    "UndefinedComparison",
    "UndefinedEnvironmentName",
    "Version",
    "allows",
    "bounds",
    "near",
    "overlaps",
    "parse",
    "requirement",
    "specifiers",
    "within",
]  # fmt: skip

ANY = "*"  # the range that every version is in
LONGEST = 200  # characters of a version or a range that anybody means


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """A version, or None where the text is none."""
    try:
        return Version(text) if len(text) <= LONGEST else None
    except InvalidVersion:
        return None


@lru_cache(maxsize=4096)
def requirement(line: str) -> Requirement | None:
    """A requirement, or None where the line is none."""
    try:
        return Requirement(line)
    except (InvalidRequirement, RecursionError):  # a marker of a thousand brackets
        return None


@lru_cache(maxsize=4096)
def specifiers(text: str) -> SpecifierSet | None:
    """A range, or None where the text is none."""
    if text == ANY:
        return SpecifierSet()
    try:
        return SpecifierSet(text) if len(text) <= LONGEST else None
    except InvalidSpecifier:
        return None


def allows(range_: str, version: str) -> bool:
    """Is a version in a range? A text that is no version is in none but `*`."""
    if range_ == ANY:
        return True
    clauses, parsed = specifiers(range_), parse(version)
    return clauses is not None and parsed is not None and bool(clauses.contains(parsed, prereleases=True))


def within(range_: str, installed: str) -> bool | None:
    """Is what is installed in a range? None when that cannot be told.

    `installed` is a version, or the range that a requirements file leaves open. A pre-release at the edge of the range
    cannot be told either: the number 5.0.0.dev0 does not say what of 5.0.0 it has.
    """
    if range_ == ANY:
        return True
    version = parse(installed)
    if version is not None:
        if allows(range_, installed):
            return True
        at_a_bound = parse(version.base_version) in bounds([range_])
        at_the_edge = version.is_prerelease and (at_a_bound or allows(range_, version.base_version))
        return None if at_the_edge else False
    if specifiers(installed) is None:
        return None
    answers = {allows(range_, version) for version in near(installed, range_) if allows(installed, version)}
    return answers.pop() if len(answers) == 1 else None


def overlaps(left: str, right: str) -> bool:
    """Is there a version in both ranges?"""
    return any(allows(left, version) and allows(right, version) for version in near(left, right))


@lru_cache(maxsize=1024)
def near(*ranges: str) -> tuple[str, ...]:
    """Versions at, a little above and a little below every bound of these ranges."""
    versions = {"0.0.1", "99999"}
    for bound in bounds(ranges):
        release = list(bound.release)
        above = ".".join(map(str, [*release[:-1], release[-1] + 1]))
        versions |= {str(bound), f"{bound.base_version}.0.1", above}
        for place, number in enumerate(release):
            if number:
                versions.add(".".join(map(str, [*release[:place], number - 1, 999])))
    return tuple(versions)


def bounds(ranges: Iterable[str]) -> list[Version]:
    """The version of every clause of these ranges."""
    clauses = (clause for range_ in ranges for clause in specifiers(range_) or ())
    parsed = (parse(clause.version.replace(".*", "")) for clause in clauses)
    return [version for version in parsed if version is not None]
