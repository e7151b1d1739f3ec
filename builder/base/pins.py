"""Pins: requirements of one exact version, such as `trl==1.16.0`."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


def exact(requirement: Requirement) -> str | None:
    """The only version that a requirement allows; None when it allows several."""
    specifiers = list(requirement.specifier)
    if len(specifiers) != 1 or specifiers[0].operator not in ("==", "===") or specifiers[0].version.endswith("*"):
        return None
    return specifiers[0].version


def read(text: str) -> dict[str, str]:
    """The pins in a requirements file, as normalised name -> version. Every other line is skipped."""
    pins: dict[str, str] = {}
    for line in text.splitlines():
        try:
            requirement = Requirement(line.partition(" #")[0])
        except InvalidRequirement:
            continue
        if (version := exact(requirement)) is not None:
            pins[canonicalize_name(requirement.name)] = version
    return pins


def moved(line: str, version: str) -> str:
    """A requirement at one version, with its extras and marker."""
    requirement = Requirement(line)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    return f"{requirement.name}{extras}=={version}{marker}"


def lines(versions: Mapping[str, str]) -> list[str]:
    """One pin for each distribution of name -> version."""
    return [f"{name}=={version}" for name, version in versions.items()]
