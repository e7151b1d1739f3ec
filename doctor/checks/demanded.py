"""What the error itself demands of versions: "a 1.0 requires b<2, but you have b 2.1", "requires b>=2"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks import asking, ranges, resolution
from doctor.checks.prose import NAMES
from doctor.finding import EXPLAINS, POINTS, Finding

PIP = re.compile(
    r"(?<![\w.-])(?P<who>[A-Za-z0-9][\w.-]*) (?P<own>\d[\w.+!-]*) (?:requires|has requirement) "
    r"(?P<what>[A-Za-z0-9][\w.-]*)"
    r"(?:\[[\w,-]+\])?\s*\(?(?P<range>(?:[<>=!~]=?[\w.*+]+,? ?)+)\)?(?:;[^\n]{0,80})?, but you(?:'ll)? have "
    r"(?P=what) (?P<have>\d[\w.+!-]*)",
    re.IGNORECASE,
)
DEMANDS = re.compile(
    rf"(?:requires?|needs?|must|at least|install|upgrade|expected|supported)\b[^\n]{{0,60}}?\b(?P<what>{NAMES})\b"
    r"[`'\" ]{0,3}(?P<range>(?:(?:>=|<=|==|~=|!=|>|<) ?\d[\w.*+]*,? ?)+)"
    rf"|\b(?P<name>{NAMES})\b[`'\" ]{{0,3}}(?P<bounds>(?:(?:>=|<=|==|~=|>|<) ?\d[\w.*+]*,? ?)+)[^\n]{{0,30}}?"
    r"\b(?:is|are|was) (?:required|needed|not supported)",
    re.IGNORECASE,
)
LEAST = re.compile(
    rf"\b(?P<what>{NAMES})\b[^\n]{{0,30}}?\b(?:at least|minimum(?: version)?(?: is| of)?)\s+v?(?P<least>\d+(?:\.\d+)+)"
    rf"|\b(?P<name>{NAMES})\b[`'\" ]{{0,3}}(?:version )?v?(?P<other>\d+(?:\.\d+)+)\+?"
    r" (?:or|and) (?:later|higher|newer|above)"
    r"|(?<![\w.-])(?P<absent>[A-Za-z][\w.-]+) with (?:a )?minimum (?:required )?version (?:of )?"
    r"v?(?P<asked>\d+(?:\.\d+)+)",
    re.IGNORECASE,
)
ADVISED = re.compile(
    r"(?:please|try|run|with|via|using|by)\b[^\n]{0,40}?[`'\"]?pip3? install (?:(?:-U|--upgrade|-q) )?[`'\"]?"
    r"(?P<what>[A-Za-z][\w.-]*)(?:\[[\w,-]+\])?(?P<range>(?:(?:>=|<=|==|~=|!=|>|<)\d[\w.*]*,?)*)[`'\"]?",
    re.IGNORECASE,
)
REMOVED = re.compile(
    rf"\b(?:was|were|is|been) (?:removed|dropped) (?:in|from|since|with) (?:the )?(?P<what>{NAMES}) "
    rf"(?:version |release |v)?(?P<since>\d+(?:\.\d+)+)",
    re.IGNORECASE,
)
UNPUBLISHED = re.compile(
    r"(?:No matching distribution found for|Could not find a version that satisfies the requirement)\s+"
    r"(?P<what>[A-Za-z][\w.-]*)(?:\[[\w,-]+\])?\s*(?P<range>(?:[<>=!~]=? ?\d[\w.*+]*,? ?)+)"
)
ABSENT = re.compile(
    r"PackageNotFoundError: (?:No package metadata was found for )?(?P<name>[A-Za-z][\w.-]+)"
    r"|Because (?P<other>[A-Za-z][\w.-]+) was not found in the package registry"
    r"|No matching distribution found for (?P<third>[A-Za-z][\w.-]+)\s*(?:\n|$|\()"
)
PAIR = re.compile(
    r"(?<![\w-])(?P<left>[A-Za-z][\w-]+) version \((?P<left_version>[\d.]+\w*)\) does not match "
    r"(?P<right>[A-Za-z][\w-]+) version \((?P<right_version>[\d.]+\w*)\)"
)


def demanded_ranges(case: Case) -> Iterator[Finding]:
    """The range that pip or a library asks for."""
    for match in PIP.finditer(case.error):
        package, requiring = aliases.of_prose(match["what"]), aliases.of_prose(match["who"])
        packages: dict[str, str | None] = {package: match["have"], requiring: match["own"]}
        yield _demand(package, packages, match["range"], match.group(), requiring, "likely")
    for match in () if resolution.unsolved(case.error) else DEMANDS.finditer(case.error):
        package = aliases.of_prose(match["what"] or match["name"])
        allowed = match["range"] or match["bounds"]
        if versions.specifiers(allowed.strip(" ,")) is not None:
            yield from _unless_installed(case, package, allowed, match.group())


def demanded_minimums(case: Case) -> Iterator[Finding]:
    """The same in words: "upgrade torch to at least v2.6", "transformers 4.51 or later"."""
    for match in LEAST.finditer(case.error):
        package = aliases.of_prose(match["what"] or match["name"] or match["absent"])
        least = match["least"] or match["other"] or match["asked"]
        yield from _unless_installed(case, package, f">={least}", match.group())


def advised_installs(case: Case) -> Iterator[Finding]:
    """ "Please install it with `pip install X`": the library that raised it knows."""
    for match in ADVISED.finditer(case.error):
        package, allowed = aliases.of_prose(match["what"]), match["range"].strip(",")
        installed = case.version(package)
        if installed is not None and (not allowed or versions.within(allowed, installed) is not False):
            continue
        yield Finding(
            rule="advised",
            title=f"the error asks for {package}{allowed}" + (f", and {installed} is installed" if installed else ""),
            packages={package: installed},
            severity="crash",
            confidence="likely" if installed or case.environment.complete else "possible",
            evidence=[f"the error says: {match.group()[:200]}"],
            remedy=[f"{package}{allowed}" if allowed else f"install {package}"],
            commands=[ranges.install(f"{package}{allowed}")],
            ranges={package: ranges.outside(allowed)} if allowed else {},
            shown=POINTS,
            weight=0.4,
        )


def _unless_installed(case: Case, package: str, allowed: str, quoted: str) -> Iterator[Finding]:
    installed = case.version(package)
    if installed is None or versions.within(allowed.strip(" ,"), installed) is False:
        confidence = "likely" if installed else "possible"
        yield _demand(package, case.versions(package), allowed, quoted, None, confidence)


def _demand(
    package: str,
    packages: dict[str, str | None],
    demanded: str,
    quoted: str,
    requiring: str | None,
    confidence: str,
) -> Finding:
    allowed, installed = demanded.strip(" ,"), packages[package]
    return Finding(
        rule="demanded",
        title=f"{requiring or 'the error'} asks for {package} {allowed}"
        + (f", and {installed} is installed" if installed else ""),
        packages=packages,
        severity="crash",
        confidence=confidence,
        evidence=[f"the error says: {quoted[:200]}"],
        remedy=[f"{package}{allowed}"],
        commands=[ranges.install(f"{package}{allowed.replace(' ', '')}")],
        ranges={package: ranges.outside(allowed)},
        shown=EXPLAINS if installed else POINTS,
        weight=0.5,
    )


def removed_names(case: Case) -> Iterator[Finding]:
    """A library says that it no longer has something: "`np.float_` was removed in the NumPy 2.0 release"."""
    match = REMOVED.search(case.error)
    if match is None:
        return
    package, since = aliases.of_prose(match["what"]), match["since"]
    installed = case.version(package)
    if installed is not None and versions.within(f">={since}", installed) is False:
        return
    yield Finding(
        rule="removed",
        title=f"{package} {since} removed a name that is asked for",
        packages={package: installed},
        severity="crash",
        confidence="likely" if installed else "possible",
        evidence=[f"the error says: {match.group()[:160]}"],
        remedy=[f"{package}<{since}, or a later release of the package that asks for it"],
        commands=[ranges.install(f"{package}<{since}")],
        ranges={package: [f">={since}"]},
        shown=EXPLAINS,
        weight=0.5,
    )


def unpublished_releases(case: Case) -> Iterator[Finding]:
    """pip finds no release: the index has none, or none for this Python or system."""
    match = UNPUBLISHED.search(case.error)
    if match is None or versions.specifiers(match["range"].strip(" ,")) is None:
        return
    package, allowed = aliases.of_prose(match["what"]), match["range"].strip(" ,")
    yield Finding(
        rule="not-found",
        title=f"pip finds no {package} {allowed}",
        packages=case.versions(package),
        severity="resolve",
        confidence="possible",
        evidence=[f"the error says: {match.group()[:160]}"],
        remedy=[f"another release of the package that requires {package} {allowed}, or an index that has it"],
        decide=["whether the index has it, for this Python and this system"],
        ranges={package: ranges.outside(allowed)},
        shown=POINTS,
    )


def absent_distributions(case: Case) -> Iterator[Finding]:
    """A distribution that is asked for by its name, and is not there: renamed, taken from the index, or forgotten."""
    names = [match["name"] or match["other"] or match["third"] for match in ABSENT.finditer(case.error)]
    for name in dict.fromkeys(map(aliases.normalise, names)):
        caller = asking.only(case, f"requires {name}", alone=True)
        renamed = aliases.SPOKEN.get(name)
        if case.version(name) or (caller is None and renamed is None):
            continue
        title = f"{name} is {f'now called {renamed}' if renamed else 'not to be had'}"
        ways = [{caller.package: f">={caller.release}"}] if caller else [{renamed or name: versions.ANY}]
        yield Finding(
            rule="absent-distribution",
            title=title + (f", and {caller.package} before {caller.release} asks for it" if caller else ""),
            packages=case.versions(caller.package if caller else renamed),
            severity="resolve",
            confidence="likely" if caller and caller.evident else "possible",
            evidence=["the error names it"],
            remedy=[f"{caller.package}>={caller.release}" if caller else f"a release of what asks for it: {renamed}"],
            ranges={caller.package: [f"<{caller.release}"]} if caller else {},
            ways=ways if caller else [],
            decide=[] if caller and caller.evident else ["what asks for it"],
            shown=EXPLAINS,
            weight=0.5,
        )


def unequal_pairs(case: Case) -> Iterator[Finding]:
    """Two packages that must have the same version say that they do not."""
    for match in PAIR.finditer(case.error):
        left, right = aliases.of_prose(match["left"]), aliases.of_prose(match["right"])
        yield Finding(
            rule="unlike-pair",
            title=f"{left} {match['left_version']} and {right} {match['right_version']} must have the same version",
            packages={left: match["left_version"], right: match["right_version"]},
            severity="crash",
            confidence="certain",
            evidence=[f"the error says: {match.group()}"],
            remedy=[f"{left}=={match['right_version']}, the version that the other packages require"],
            commands=[ranges.install(f"{left}=={match['right_version']}")],
            ranges={left: [f"!={match['right_version']}"], right: [f"!={match['left_version']}"]},
            shown=EXPLAINS,
            weight=1.0,
        )
