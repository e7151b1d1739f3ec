"""Ranges of versions, as advisories write them for packages and for what they run on."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator

from builder.base import aliases

ANY = "*"  # any version


def _versions(value: str) -> str:
    if value == ANY:
        return value
    try:
        specifiers = SpecifierSet(value)
    except InvalidSpecifier:
        specifiers = SpecifierSet()
    if not len(specifiers):
        raise ValueError(f"{value!r} is not a range of versions, such as '>=4.52.1,<5' or '{ANY}'")
    return value


def _packages(value: dict[str, str]) -> dict[str, str]:
    for name in value:
        if name != aliases.main_name(name):
            raise ValueError(f"{name!r}: write {aliases.main_name(name)!r}")
    return value


Versions = Annotated[str, AfterValidator(_versions)]
Packages = Annotated[dict[str, Versions], AfterValidator(_packages)]


@functools.lru_cache(maxsize=1 << 16)  # a hundred advisories ask the same of the same few versions
def contains(versions: str, version: str) -> bool:
    """Does a version lie in a range? Pre-releases do; what is not a version lies in ANY alone."""
    if versions == ANY:
        return True
    try:
        return SpecifierSet(versions).contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def match(packages: Mapping[str, str], installed: Mapping[str, str]) -> bool:
    """Are all packages installed, each in its range? `installed` is name -> version."""
    names = _by_main_name(tuple(installed))
    return all(
        any(contains(versions, installed[name]) for name in names.get(package, ()))
        for package, versions in packages.items()
    )


@functools.lru_cache(maxsize=64)  # every advisory asks about the same environment
def _by_main_name(names: tuple[str, ...]) -> dict[str, list[str]]:
    known: dict[str, list[str]] = {}
    for name in names:
        known.setdefault(aliases.main_name(name), []).append(name)
    return known


def text(packages: Mapping[str, str]) -> str:
    """Packages and their ranges in one line."""
    return " + ".join(name if versions == ANY else f"{name}{versions}" for name, versions in packages.items())
