"""What the suite measured in the environment: each red probe, with its numbers and the advisory that explains it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from doctor.case import Case
from doctor.checks import advisories
from doctor.checks.advisories import Combination
from doctor.finding import EXPLAINS, Finding
from doctor.know.data import Advisory
from doctor.read.suite import Result

RULE = "measured"
TITLE = "red here: "
ENDED = ("crashed", "timeout")
MATCHED = 2  # every package of a combination is in its range
NUMBER = re.compile(r"\d+")


class Explanation(NamedTuple):
    """An advisory that explains red probes here: the combination that is installed, and the probes' results."""

    advisory: Advisory
    combination: Combination
    red: list[Result]
    recognised: bool  # in what the probes say: they said it on a control of the advisory, or it has a symptom
    share: float  # of its probes that ran, those that are red

    @property
    def order(self) -> tuple[bool, float, float]:
        """The larger, the better it explains."""
        return self.recognised, self.share, self.combination.weight


def red_probes(case: Case) -> Iterator[Finding]:
    """A finding for each advisory that explains red probes best, and one for what none explains.

    A probe asks several things: one that is red for two faults says the words of both, and both are named.
    """
    red = [result for result in case.measured if result.red]
    explanations = sorted(_explanations(case, red), key=lambda explanation: explanation.order, reverse=True)
    explained: set[str] = set()
    for explanation in explanations:
        new = [result for result in explanation.red if result.probe not in explained]
        if new or explanation.recognised:
            explained |= {result.probe for result in new}
            yield _of_advisory(explanation, case)
    for alike in _by_reason([result for result in red if result.probe not in explained]):
        yield _unexplained(alike, case)


def _explanations(case: Case, red: Sequence[Result]) -> Iterator[Explanation]:
    """The advisories about what is installed of whose probes one is red, or whose symptom a red probe shows."""
    ran = {result.probe for result in case.measured if result.outcome != "not-run"}
    for advisory in case.knowledge.advisories:
        probes = advisory.get("probes", [])
        own = [result for result in red if result.probe in probes or _quoted(advisory, result)]
        combinations = [advisories.combination(affected, case) for affected in advisory["affected"]]
        installed = [each for each in combinations if each.matched == MATCHED and each.ranges]
        if not own or not installed:
            continue
        best = max(installed, key=lambda combination: combination.weight)
        recognised = any(_recognises(advisory, result) for result in own)
        share = min(1.0, len(own) / (len(ran.intersection(probes)) or 1))
        yield Explanation(advisory, best, own, recognised, round(share, 2))


def _recognises(advisory: Advisory, result: Result) -> bool:
    return any(reason in _words(result) for reason in advisory.get("reasons", ())) or _quoted(advisory, result)


def _quoted(advisory: Advisory, result: Result) -> bool:
    """Does a red probe say what is a symptom of it?"""
    return advisories.quotation(advisory, _words(result)).shown == EXPLAINS


def _words(result: Result) -> str:
    return f"{result.reason}\n{result.log}"


def _of_advisory(explanation: Explanation, case: Case) -> Finding:
    advisory, ranges = explanation.advisory, explanation.combination.ranges
    return Finding(
        rule=advisory["id"],
        title=advisory["summary"],
        packages=case.versions(*ranges),
        severity=advisory["severity"],
        # That a version has the fault and a probe of it is red may still be two things.
        confidence="certain" if explanation.recognised or explanation.share == 1 else "likely",
        evidence=[
            *map(_sentence, explanation.red),
            *(f"{name} {case.version(name)}, affected {range_}" for name, range_ in ranges.items()),
        ],
        remedy=[advisories.way_out(fix) for fix in advisory["fix"]],
        ranges={name: [range_] for name, range_ in ranges.items()},
        links=[reference["url"] for reference in advisory["references"]],
        shown=EXPLAINS,
        weight=10 + explanation.combination.weight,
    )


def _by_reason(results: Sequence[Result]) -> list[list[Result]]:
    """Results that say the same, but for their numbers, belong together."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(NUMBER.sub("", result.reason)[:200], []).append(result)
    return list(groups.values())


def _unexplained(alike: Sequence[Result], case: Case) -> Finding:
    names = ", ".join(result.probe for result in alike)
    return Finding(
        rule=RULE,
        title=f"{TITLE}{names}",
        packages=case.versions(*(name for name in ("trl", "transformers", "vllm", "deepspeed") if case.version(name))),
        severity="crash" if all(result.outcome in ENDED for result in alike) else "silent-wrong",
        confidence="certain",
        evidence=[_sentence(result) for result in alike],
        remedy=["no advisory names the cause: the nearest stack passes these probes where it is certified"],
        shown=EXPLAINS,
        weight=len(alike),
    )


def first_probe(finding: Finding) -> str:
    """The first of the probes that an unexplained finding is about."""
    return finding.title[len(TITLE) :].partition(", ")[0]


def _sentence(result: Result) -> str:
    reason = result.reason or result.outcome
    return f"{result.probe}, run here: {reason}" + (f" ({result.matters})" if result.matters else "")
