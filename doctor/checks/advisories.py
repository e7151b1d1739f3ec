"""Advisories against an environment, the context of the run, and the text of an error.

An advisory applies for certain when every package of a combination is in its range and every condition is met; it may
apply when nothing contradicts it. What the text says counts more than what is not known, and a version outside its
range counts more than any text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from re import Pattern
from typing import NamedTuple

from doctor.base import versions
from doctor.case import Case
from doctor.finding import EXPLAINS, POINTS, SILENT, Finding
from doctor.know import owners
from doctor.know.data import Advisory, Affected, Fix

# Words about a kind of harm: a text with one of them may be about an advisory of this severity.
WORDS = {
    "hang": re.compile(
        r"\b(?:hangs?|hung|hanging|stuck|deadlocks?|freez\w+|blocked|never returns|time[ds]? ?out)\b", re.I
    ),
    "silent-wrong": re.compile(
        r"\bwors|gibberish|garbage|\bwrong|incorrect|diverg|degrad|mangled|noise|never improv|no training|silent"
        r"|mismatch|not (?:learn|improv|train|synchron|increas)|log-?prob|\bratio\b|\bgap\b|differen|\bkl\b"
        r"|rewards? (?:drop|stay|is|are)|\binstead of\b|\baccumulat|\b(?:zero|sum|doubl\w+)\b"
        r"|\b(?:higher|lower|larger|multipl\w*|explod\w*|spikes?|collaps\w*|nan)\b",
        re.IGNORECASE,
    ),
    "waste": re.compile(r"memory|\boom\b|\bslow", re.IGNORECASE),
}
CRASHES = ("crash", "resolve")
# Conditions that only a person can judge, or a GPU that nobody named.
UNSEEN = ({"note"}, {"gpu_model"}, {"trainer"})
# A quotation that names something of a package; "expected Half but found Float" can come from anywhere.
SPECIFIC = re.compile(r"\w_\w|[a-z][A-Z]|[A-Za-z]\.[A-Za-z]|'[\w.]{3,}'|`|--\w")
EVIDENCE = {
    "executed": "was run by us, or read from the published packages",
    "read": "was read in the sources",
    "inferred": "is inferred, not confirmed",
}
QUOTED = 200  # characters of a quotation


class Quotation(NamedTuple):
    """What an advisory recognises in a text: SILENT, POINTS (a hint) or EXPLAINS (a symptom), and the words."""

    shown: int = SILENT
    words: str = ""


@dataclass
class Combination:
    """One combination of an advisory: is each package in its range, is each condition met? None: not known."""

    affected: Affected
    packages: dict[str, bool | None]
    conditions: dict[str, bool | None]

    @property
    def ranges(self) -> dict[str, str]:
        """The bad range of each package."""
        return self.affected.get("packages", {})

    @property
    def contradicted(self) -> bool:
        """Is a package outside its range, or a condition not met?"""
        return False in self.packages.values() or False in self.conditions.values()

    @property
    def matched(self) -> int:
        """How many packages are known to be in their ranges: 2 all, 1 some, 0 none."""
        if all(self.packages.values()):
            return 2
        return 1 if any(self.packages.values()) else 0

    @property
    def settled(self) -> bool:
        """Is every condition known to be met?"""
        return all(self.conditions.values())

    @property
    def any_version(self) -> bool:
        """Does it affect every version of its packages?"""
        return set(self.ranges.values()) <= {versions.ANY}

    @property
    def undecided(self) -> list[str]:
        """What is not known, in words."""
        packages = [_requirement(name, range_) for name, range_ in self.ranges.items() if self.packages[name] is None]
        return [*packages, *(condition for condition, met in self.conditions.items() if met is None)]

    @property
    def weight(self) -> float:
        """How much evidence there is. That a package is there, in any version, is little."""
        matched = (range_ for name, range_ in self.ranges.items() if self.packages[name])
        weights = sum(1.0 if range_ != versions.ANY else 0.2 for range_ in matched)
        return weights + 0.5 * sum(1 for met in self.conditions.values() if met)


def known_combinations(case: Case) -> Iterator[Finding]:
    """What every advisory has to say."""
    for advisory in case.knowledge.advisories:
        finding = _of_advisory(advisory, case)
        if finding is not None:
            yield finding


def combination(affected: Affected, case: Case) -> Combination:
    """A combination against the environment and the context of the run."""
    packages: dict[str, bool | None] = {}
    for name, range_ in affected.get("packages", {}).items():
        version = case.version(name)
        if version is None:
            packages[name] = False if case.environment.complete else None
        else:
            packages[name] = versions.within(range_, version)
    context = dict(affected.get("context") or {})
    absent = {f"without {name}": _is_absent(case, name) for name in context.pop("without", ())}
    return Combination(affected, packages, {**case.context.conditions(context), **absent})


def _is_absent(case: Case, name: str) -> bool | None:
    """Is a package not installed? None where a list of packages may leave it out."""
    if case.version(name) is not None:
        return False
    return True if case.environment.complete else None


def quotation(advisory: Advisory, text: str) -> Quotation:
    """The longest words of a text that a symptom matches; where none does, those of a hint."""
    kinds = ((EXPLAINS, advisory.get("symptoms", [])), (POINTS, advisory.get("hints", [])))
    for shown, patterns in kinds:
        matches = [match.group() for match in (_compiled(pattern).search(text) for pattern in patterns) if match]
        if text and matches:
            return Quotation(shown, max(matches, key=len)[:QUOTED])
    return Quotation()


def _of_advisory(advisory: Advisory, case: Case) -> Finding | None:
    combinations = [combination(affected, case) for affected in advisory["affected"]]
    combinations = [candidate for candidate in combinations if not candidate.contradicted]
    if not combinations:
        return None
    frames = set(owners.frames(case.error))
    best = max(
        combinations,
        key=lambda candidate: (
            candidate.matched, candidate.settled, candidate.weight, len(frames & candidate.ranges.keys()),
        ),
    )  # fmt: skip
    quoted = quotation(advisory, case.error)
    severity = advisory["severity"]
    about = severity in WORDS and WORDS[severity].search(case.error) is not None
    other_error = _other_error(case, quoted, severity, about)
    confidence = _confidence(best, quoted, other_error, advisory)
    if confidence is None:
        return None
    shown = quoted.shown
    if not shown and best.matched == 2 and about and not case.failed:
        shown = POINTS  # the text is about such harm, which makes the finding no surer
    return Finding(
        rule=advisory["id"],
        title=advisory["summary"],
        packages=case.versions(*best.ranges),
        severity=severity,
        confidence=confidence,
        evidence=_evidence(advisory, best, case, quoted.words),
        remedy=[way_out(_of_combination(fix, best, advisory, case)) for fix in advisory["fix"]],
        ranges={name: [range_] for name, range_ in best.ranges.items()},
        decide=[] if confidence == "certain" else best.undecided,
        links=[reference["url"] for reference in advisory["references"]],
        setting=any(not fix.get("packages") for fix in advisory["fix"]),
        shown=shown,
        idle=confidence == "possible" and not shown and not any(best.conditions.values()),
        weight=best.weight + (0.01 * len(quoted.words) if shown == EXPLAINS else 0),
        # Where the run got past a crash, it was another environment's; what raises no error is still there.
        apart=other_error and severity == "silent-wrong" and _confidence(best, quoted, False, advisory) == "certain",
    )


def _other_error(case: Case, quoted: Quotation, severity: str, about: bool) -> bool:
    """Is the error about something else? The run got past this fault, ended before it, or failed of another.

    A run that fails neither hangs nor trains wrongly.
    """
    return bool(case.error) and not quoted.shown and (severity in CRASHES or (case.failed and not about))


def _confidence(best: Combination, quoted: Quotation, other_error: bool, advisory: Advisory) -> str | None:
    """How sure it is; None when there is no evidence."""
    if best.matched == 2:
        return _confidence_of_match(best, quoted, other_error, advisory)
    if quoted.shown == EXPLAINS:
        supported = best.matched or any(best.conditions.values())
        return "likely" if supported or SPECIFIC.search(quoted.words) else "possible"
    if quoted.shown == POINTS:
        return "likely" if best.matched and best.settled and best.conditions else "possible"
    return None


def _confidence_of_match(best: Combination, quoted: Quotation, other_error: bool, advisory: Advisory) -> str | None:
    """Every package is known to be in its range."""
    sure = "likely" if advisory["evidence"]["kind"] == "inferred" else "certain"
    if quoted.shown == EXPLAINS:
        if best.settled or not best.any_version:
            return sure
        # In every version, and under conditions that nobody stated: the error is the only evidence.
        return "likely" if SPECIFIC.search(quoted.words) else "possible"
    if best.settled:
        return "possible" if other_error or (not best.ranges and not quoted.shown) else sure
    if quoted.shown:
        return "likely"
    # That packages are there, in any version, is not worth a finding. Nor is a crash under a condition that cannot be
    # seen, until it has happened.
    unseen = advisory["severity"] in CRASHES and set(best.affected.get("context") or {}) in UNSEEN
    idle = not any(best.conditions.values()) and (best.any_version or unseen)
    return None if other_error or idle else "possible"


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> Pattern[str]:
    return re.compile(pattern)


def stated(best: Combination, case: Case) -> list[str]:
    """The versions of a combination's packages, and its ranges."""
    lines = []
    for name, range_ in best.ranges.items():
        version = case.version(name)
        installed = f"{name} {version}" if version else f"{name} (version not given)"
        lines.append(installed if range_ == versions.ANY else f"{installed}, affected {range_}")
    return lines


def _evidence(advisory: Advisory, best: Combination, case: Case, quoted: str) -> list[str]:
    lines = stated(best, case)
    lines += [condition for condition, met in best.conditions.items() if met]
    if quoted:
        lines.append(f"the error says: {quoted}")
    return [*lines, f"{advisory['id']} {EVIDENCE[advisory['evidence']['kind']]}"]


def _of_combination(fix: Fix, best: Combination, advisory: Advisory, case: Case) -> Fix:
    """A fix without the packages of other combinations that are not known to be installed."""
    packages = involved(fix.get("packages", {}), advisory, best.ranges, case)
    return {**fix, "packages": packages} if packages else fix


def involved(way: dict[str, str], advisory: Advisory, blamed: Collection[str], case: Case) -> dict[str, str]:
    """Of a way out, the packages that are blamed, and others only if they are installed or in the traceback."""
    others = {name for affected in advisory["affected"] for name in affected.get("packages", {})} - set(blamed)
    here = set(owners.frames(case.error))
    return {
        name: range_
        for name, range_ in way.items()
        if name not in others or name in here or case.version(name) is not None
    }


def way_out(fix: Fix) -> str:
    """A fix in words."""
    packages = " and ".join(_requirement(name, range_) for name, range_ in fix.get("packages", {}).items())
    note = fix.get("note") or ""
    return f"{packages} ({note})" if packages and note else packages or note


def _requirement(name: str, range_: str) -> str:
    return name if range_ == versions.ANY else f"{name}{range_}"
