"""What the packages that are there forbid: a way out that they declare not to go with is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.know import published


def by(case: Case, package: str, range_: str) -> str:
    """The package that forbids all of a range, in words: "transformers 4.50.0 needs tokenizers<0.22"; "" for none.

    What is not stated, but needed by what is, counts where every release of it that may be there forbids it.
    """
    for name, installed in case.environment.packages.items():
        if name == package:
            continue
        lines = _needs(case, name, installed.version, installed.requires)
        needed = _needed(lines, package)
        if needed and not versions.overlaps(needed, range_):
            return f"{name} {installed.version} needs {package}{needed}"
        if case.environment.complete:
            continue
        for between, allowed in _unstated(case, lines):
            if _every_forbids(case, between, allowed, package, range_):
                return f"{name} {installed.version} needs {between}{allowed}, which does not go with {package}{range_}"
    return ""


def _needs(case: Case, name: str, version: str, requires: Iterable[str]) -> tuple[str, ...]:
    """What a release declares to need: by its metadata, else as it was published."""
    return tuple(requires or case.knowledge.requires(name).get(version) or published.requires(name, version))


def _needed(lines: Iterable[str], package: str) -> str:
    """The range of a package in lines of requirements; "" where there is none."""
    for line in lines:
        need = versions.requirement(line) if "extra ==" not in line else None
        if need is not None and aliases.normalise(need.name) == package and need.specifier:
            return str(need.specifier)
    return ""


def _unstated(case: Case, lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The packages in lines of requirements that nobody stated, with the range of each."""
    for line in lines:
        need = versions.requirement(line) if "extra ==" not in line else None
        name = aliases.normalise(need.name) if need is not None else ""
        if need is not None and need.specifier and case.version(name) is None:
            yield name, str(need.specifier)


def _every_forbids(case: Case, name: str, allowed: str, package: str, range_: str) -> bool:
    """Does every known release in a range need the package outside another range?"""
    releases = {**case.knowledge.requires(name), **published.releases(name)}
    needed = [_needed(lines, package) for release, lines in releases.items() if versions.allows(allowed, release)]
    return bool(needed) and all(limit and not versions.overlaps(limit, range_) for limit in needed)
