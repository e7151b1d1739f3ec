"""Errors that others have met and solved, and releases that are reported to be wrong without an error."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.checks import advisories, ranges
from doctor.checks.advisories import Combination
from doctor.finding import EXPLAINS, POINTS, SILENT, Finding
from doctor.know import threads
from doctor.know.threads import Thread


def reported_errors(case: Case) -> Iterator[Finding]:
    """The threads whose words the error has; without an error, those about the releases that are installed."""
    for thread in threads.load():
        told = advisories.combination({"packages": thread.affected}, case)
        if told.contradicted:
            continue
        if thread.shows_in(case.error):
            yield _finding(case, thread, told, EXPLAINS)
        elif not thread.words and told.matched == 2 and not case.failed and _bounded(thread):
            about = advisories.WORDS["silent-wrong"].search(case.error) or advisories.WORDS["hang"].search(case.error)
            yield _finding(case, thread, told, POINTS if about else SILENT)


def _bounded(thread: Thread) -> bool:
    """Does it affect some releases, and not all before a fix? The latter would be said of every old environment."""
    clauses = versions.specifiers(thread.affected[thread.package]) or ()
    return any(clause.operator in ("==", ">=", ">", "~=") for clause in clauses)


def _finding(case: Case, thread: Thread, told: Combination, shown: int) -> Finding:
    words = max(thread.words, key=len, default="")
    likely = bool(thread.words) and thread.confirmed and bool(told.packages[thread.package]) and told.matched
    ways = [{name: "" if range_ == versions.ANY else range_ for name, range_ in fix.items()} for fix in thread.fix]
    return Finding(
        rule="reported",
        title=f"{thread.package}: {thread.cause}",
        packages=case.versions(*thread.affected),
        severity="crash" if thread.words else "silent-wrong",
        confidence="likely" if likely else "possible",
        evidence=[
            *advisories.stated(told, case),
            *([f"the error says: {words}"] if words else [thread.sample]),
            f"others met this, and {'solved it' if thread.confirmed else 'say what causes it'}: {thread.urls[0]}",
        ],
        remedy=[" and ".join(f"{name}{range_}" for name, range_ in way.items()) for way in ways],
        commands=[] if likely else [ranges.install(*(f"{name}{range_}" for name, range_ in ways[0].items()))],
        ways=ways,
        ranges={name: [range_] for name, range_ in thread.affected.items() if range_ != versions.ANY},
        decide=told.undecided,
        links=thread.urls,
        shown=shown,
        idle=shown == SILENT,
        weight=told.weight + 0.01 * sum(map(len, thread.words)),
    )
