"""Errors that others have met and solved, and releases that are reported to be wrong without an error."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.checks import advisories, ranges
from doctor.checks.advisories import Combination
from doctor.finding import EXPLAINS, POINTS, SILENT, Finding
from doctor.know import threads
from doctor.know.threads import Thread

UPWARDS = (">=", ">")
DOWNWARDS = ("<", "<=")


def reported_errors(case: Case) -> Iterator[Finding]:
    """The threads whose words the error has; without an error, those about the releases that are installed."""
    for thread in threads.load():
        combination = advisories.combination({"packages": thread.affected}, case)
        if combination.contradicted:
            continue
        if thread.shows_in(case.error):
            yield _finding(case, thread, combination, EXPLAINS if _is_involved(case, thread) else POINTS)
        elif not thread.words and combination.matched == 2 and not case.failed and _is_bounded(thread):
            about = advisories.WORDS.get(thread.severity)
            yield _finding(case, thread, combination, POINTS if about and about.search(case.error) else SILENT)


def _is_involved(case: Case, thread: Thread) -> bool:
    """Is the package at fault stated, or does the error name it? Others may have the same words."""
    name = re.escape(thread.package).replace("-", "[-_]?")
    return case.version(thread.package) is not None or re.search(name, case.error, re.IGNORECASE) is not None


def _is_bounded(thread: Thread) -> bool:
    """Does its range have two ends? With one, it would accuse every old environment, or every new one."""
    operators = {clause.operator for clause in versions.specifiers(thread.affected[thread.package]) or ()}
    return "==" in operators or bool(operators & set(UPWARDS) and operators & set(DOWNWARDS))


def _finding(case: Case, thread: Thread, combination: Combination, shown: int) -> Finding:
    words = max(thread.words, key=len, default="")
    likely = bool(thread.words) and thread.confirmed and bool(combination.packages[thread.package])
    ways = [{name: "" if range_ == versions.ANY else range_ for name, range_ in fix.items()} for fix in thread.fix]
    return Finding(
        rule="reported",
        title=f"{thread.package}: {thread.cause}",
        packages=case.versions(*thread.affected),
        severity=thread.severity,
        confidence="likely" if likely else "possible",
        evidence=[
            *advisories.stated(combination, case),
            *([f"the error says: {words}"] if words else [thread.sample]),
            f"others met this, and {'solved it' if thread.confirmed else 'say what causes it'}: {thread.urls[0]}",
        ],
        remedy=[" and ".join(f"{name}{range_}" for name, range_ in way.items()) for way in ways],
        commands=_command(case, thread, ways[0], likely, shown),
        ways=ways,
        ranges={name: [range_] for name, range_ in thread.affected.items() if range_ != versions.ANY},
        decide=[*combination.undecided, *([thread.note] if thread.note else [])],
        links=thread.urls,
        shown=shown,
        idle=shown == SILENT,
        weight=combination.weight + 0.01 * sum(map(len, thread.words)),
    )


def _command(case: Case, thread: Thread, way: dict[str, str], likely: bool, shown: int) -> list[str]:
    """The command of the best way, where it goes up or adds what is missing: a guess is no reason to go back.

    A likely finding gets that of the smallest step later (commands.py), unless it adds a package.
    """
    if likely:
        offered = any(name not in thread.affected and case.version(name) is None for name in way)
    else:
        offered = shown == EXPLAINS and all(_goes_up(range_) for range_ in way.values())
    return [ranges.install(*(f"{name}{range_}" for name, range_ in way.items()))] if offered else []


def _goes_up(range_: str) -> bool:
    operators = {clause.operator for clause in versions.specifiers(range_) or ()}
    return not operators or bool(operators & set(UPWARDS))
