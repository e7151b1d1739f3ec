"""Steps between releases: how far one is, which release an installer would take, what it would bring with it."""

from __future__ import annotations

from functools import lru_cache

from doctor.base import versions
from doctor.case import Case
from doctor.checks import requires
from doctor.checks.advisories import combination
from doctor.know import published
from doctor.know.data import Advisory

BACK = 1.5  # an older release lacks what the code was written for
FAR = 100.0  # the distance to a range when it cannot be told


def is_certain(advisory: Advisory, case: Case) -> bool:
    """Is every package of a combination in its range, and every condition met?"""
    combinations = (combination(affected, case) for affected in advisory["affected"])
    return any(combined.matched == 2 and combined.settled for combined in combinations)


def newest(case: Case, package: str, range_: str) -> str:
    """The newest known release in a range, which an installer would take; "" where none is known."""
    return _newest(tuple(case.knowledge.requires(package)), range_)


@lru_cache(maxsize=4096)
def _newest(releases: tuple[str, ...], range_: str) -> str:
    return max((release for release in releases if versions.allows(range_, release)), key=_place, default="")


def given(case: Case, package: str, range_: str) -> str:
    """The version that is there once a range was installed; "" where no release can be in it."""
    installed = case.version(package) or ""
    if installed and versions.within(range_, installed) is True:
        return installed
    known = newest(case, package, range_)
    if known:
        return known
    # The releases of few packages are known, and none that came since.
    latest = newest(case, package, versions.ANY)
    others = [version for version in versions.near(range_) if versions.allows(range_, version)]
    later = [version for version in others if not latest or _place(version) > _place(latest)]
    return max(later, key=_place, default="")


def _place(version: str) -> versions.Version:
    return versions.parse(version) or versions.Version("0")


def distance(installed: str, range_: str) -> float:
    """How far a version is from a range: 10 for each major version, 1 for each minor one, and more for older ones."""
    own = versions.parse(installed)
    if own is None:
        return FAR
    nearest = FAR
    for clause in versions.specifiers(range_) or ():
        bound = versions.parse(clause.version.replace(".*", ""))
        if bound is not None and (not versions.allows(str(clause), installed) or clause.operator == "=="):
            parts = [abs(here - there) for here, there in zip((*own.release, 0, 0)[:3], (*bound.release, 0, 0)[:3])]
            far = parts[0] * 10 + parts[1] + parts[2] / 100
            nearest = min(nearest, far * (BACK if bound < own else 1.0))
    return nearest


def older(installed: str, range_: str) -> bool:
    """Is every release of a range before what is installed?"""
    own = versions.parse(installed)
    return own is not None and not versions.overlaps(range_, f">={own.public}")


def narrow(installed: str, range_: str) -> str:
    """A range without an upper end, cut to the first minor version that has the fix: the smallest step."""
    clauses = list(versions.specifiers(range_) or ())
    lower = [clause for clause in clauses if clause.operator in (">=", ">")]
    if len(clauses) != 1 or not lower or versions.allows(range_, installed):
        return range_
    bound = versions.parse(lower[0].version)
    if bound is None:
        return range_
    major, minor = (*bound.release, 0)[:2]
    return f"{range_},<{major}.{minor + 1}"


def joined(*ranges: str) -> str:
    """The range of what is in all of these, without clauses that another one makes superfluous."""
    clauses = {str(clause): clause for range_ in ranges for clause in versions.specifiers(range_) or ()}
    lower = [clause for clause in clauses.values() if clause.operator in (">=", ">")]
    upper = [clause for clause in clauses.values() if clause.operator in ("<=", "<")]
    # Of two with one version, the one that leaves that version out.
    keep = [max(lower, key=lambda clause: (_place(clause.version), clause.operator == ">"))] if lower else []
    keep += [min(upper, key=lambda clause: (_place(clause.version), clause.operator != "<"))] if upper else []
    keep += [clause for text, clause in sorted(clauses.items()) if clause.operator not in (">=", ">", "<=", "<")]
    exact = [clause for clause in keep if clause.operator == "==" and not clause.version.endswith("*")]
    if len(exact) == 1 and all(versions.allows(str(clause), exact[0].version) for clause in keep):
        keep = exact
    return ",".join(map(str, keep)) or versions.ANY


def releases(case: Case, package: str) -> list[str]:
    """The final releases that are known of a package, in their order."""
    known = {*case.knowledge.requires(package), *published.releases(package)}
    return sorted((release for release in known if not _place(release).is_prerelease), key=_place)


def releases_for(case: Case, package: str, needed: str) -> set[str]:
    """Those of its releases that declare a range of another package with what is installed of it."""
    installed, fitting = case.version(needed) or "", set()
    for release in releases(case, package):
        needs = requires.declared(case.knowledge, package, release, case.environment.python)
        allowed = [need.allowed for need in needs if need.package == needed]
        if allowed and all(versions.within(range_, installed) is True for range_ in allowed):
            fitting.add(release)
    return fitting


def runs(places: list[int]) -> list[tuple[int, int]]:
    """Where each run of successive numbers begins in a list, and how long it is."""
    begins = [at for at, place in enumerate(places) if at == 0 or places[at - 1] != place - 1]
    return [(begin, end - begin) for begin, end in zip(begins, [*begins[1:], len(places)])]
