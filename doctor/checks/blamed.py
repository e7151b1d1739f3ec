"""The releases that a report blames: "after upgrading X from A to B", "works with X 1.0". A guess of its author."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks import ranges
from doctor.checks.prose import NAMES, VERSION
from doctor.finding import POINTS, Finding

UPGRADED = re.compile(
    rf"\b({NAMES})\b[^\n.]{{0,40}}?\bfrom\s+(?:v(?:ersion)?\s*)?{VERSION}\s+to\s+(?:v(?:ersion)?\s*)?{VERSION}",
    re.IGNORECASE,
)
# "after upgrading to X 1.0", "since X released 1.0": it broke with this release, so the one before it worked.
BROKE = re.compile(
    rf"\b(?:upgrad|updat|bump|migrat)\w*\b[^\n.]{{0,25}}?\b({NAMES})\b[^\n.]{{0,12}}?{VERSION}"
    rf"|\b(?:after|since)\b[^\n.]{{0,15}}?\b({NAMES})\b[^\n.]{{0,12}}?\breleased? (?:version )?{VERSION}",
    re.IGNORECASE,
)
# "downgrading X to 1.0 helps", "works with X 1.0": a release before the bad ones.
WORKS = re.compile(
    r"\b(?:downgrad\w*|revert\w*|roll\w* back|going back|back to|pin\w*)\b[^\n.]{0,30}?"
    rf"\b({NAMES})\b[^\n.]{{0,25}}?{VERSION}"
    rf"|\b(?:works?|worked|fine|ok|success\w*)\b[^\n.]{{0,12}}? (?:with|on|in|using)\s+({NAMES})\b"
    rf"[ =vV]{{1,4}}{VERSION}"
    rf"|\b({NAMES})\b[ =vV]{{1,4}}{VERSION} (?:works|is fine|was fine|is ok)",
    re.IGNORECASE,
)
# "fixed in X 1.0": the first release after the bad ones.
FIXED = re.compile(
    rf"\b(?:fixed|solved|resolved|repaired) (?:in|by|with)\b[^\n.]{{0,20}}?\b({NAMES})\b[ =<>vV]{{1,4}}{VERSION}",
    re.IGNORECASE,
)
LONGEST = 4000  # characters of a report; a log names versions without blaming them


def blamed_releases(case: Case) -> Iterator[Finding]:
    """Only from prose."""
    text = case.error
    if len(text) > LONGEST or "Traceback (most recent call last)" in text:
        return
    done: set[str] = set()
    yield from _upgraded(case, text, done)
    yield from _compared(case, text, done)
    for match in BROKE.finditer(text):
        name, bad = [group for group in match.groups() if group][:2]
        package = aliases.of_prose(name)
        if package not in done:
            done.add(package)
            yield _finding(case, {package: f">={bad}"}, match.group(), f"{package}<{bad}", "came before")


def _upgraded(case: Case, text: str, done: set[str]) -> Iterator[Finding]:
    for match in UPGRADED.finditer(text):
        package, old, new = aliases.of_prose(match[1]), match[2], match[3]
        done.add(package)
        yield _finding(case, {package: f">{old},<={new}"}, match.group(), f"{package}=={old}")


def _compared(case: Case, text: str, done: set[str]) -> Iterator[Finding]:
    """A release that works: the bad ones are after it, or before it where it came with a fix."""
    for pattern, fix in ((WORKS, False), (FIXED, True)):
        for match in pattern.finditer(text):
            name, good = [group for group in match.groups() if group][:2]
            package = aliases.of_prose(name)
            if package in done:
                continue
            done.add(package)
            installed = case.version(package)
            older = installed is not None and versions.within(f"<{good}", installed)
            bad = f"<{good}" if fix or older else f">{good}"
            yield _finding(case, {package: bad}, match.group(), f"{package}{'>=' if fix else '=='}{good}")


def _finding(case: Case, bad: dict[str, str], quoted: str, good: str, why: str = "the report says worked") -> Finding:
    return Finding(
        rule="told",
        title=f"the report itself blames {' with '.join(bad)}",
        packages=case.versions(*bad),
        severity="crash",
        confidence="possible",
        evidence=[f"the report says: {quoted[:160]}"],
        remedy=[f"{good}, which {why}"],
        commands=[ranges.install(good)],
        decide=["whether the same run works with that release: nothing else is known"],
        ranges={package: [range_] for package, range_ in bad.items()},
        shown=POINTS,
        weight=3.0 if not why.startswith("came") else -1.0,  # its author tried it
    )
