"""pip or uv found no solution: who requires what, and a release whose requirements go with the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.finding import EXPLAINS, Finding
from doctor.know import published

UNSOLVED = re.compile(r"conflicting dependencies|ResolutionImpossible|No solution found when resolving|unsatisfiable")
NAME, RANGE = r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?", r"(?:(?:===?|~=|!=|<=?|>=?) ?[\w.*+!]+(?:, ?)?)+"
BY_PACKAGE = re.compile(
    rf"(?<![\w.:-])(?P<who>{NAME})(?: (?P<release>\d[\w.+!]*)|==(?P<pin>\d[\w.+!]*)|{RANGE})?"
    rf" depends? on (?P<what>{NAME}) ?(?P<range>{RANGE})"
)
BY_USER = re.compile(
    rf"(?:you require|The user requested(?: \(constraint\))?|your project depends on) "
    rf"(?P<all>{NAME} ?{RANGE}(?: and {NAME} ?{RANGE})*)"
)
MOST = 100  # demands that are compared with each other
ONE = re.compile(rf"(?<![\w.-])(?P<what>{NAME}) ?(?P<range>{RANGE})")
# uv breaks its lines, and draws a frame at their beginning.
BREAK = re.compile(r"(?<![ \t])[ \t]*\n[ \t│╰├─▶▸]*(?=[a-z\d])")
OTHER_PYTHON = re.compile(
    rf"current Python version \((?P<have>\d[\d.]*)\) does not satisfy\s+Python ?(?P<need>{RANGE})"
)


class Demand(NamedTuple):
    """A requirement on the package `what`: of a release of the package `who`, or of the user, where both are ""."""

    what: str
    allowed: str
    who: str
    release: str

    @property
    def words(self) -> str:
        """The demand for people."""
        who = f"{self.who} {self.release} requires" if self.who else "you require"
        return f"{who} {self.what}{self.allowed}"


def unsolved(error: str) -> bool:
    """Is it the answer of a resolver? The requirements that it quotes are then no advice."""
    return UNSOLVED.search(error) is not None


def conflicting_demands(case: Case) -> Iterator[Finding]:
    """The first two demands that exclude each other, and other releases of those that have them."""
    if not unsolved(case.error):
        return
    demands = list(dict.fromkeys(_demands(case.error)))[:MOST]
    for left, right in combinations(demands, 2):
        if left.what == right.what and left.who != right.who and not _meet(left.allowed, right.allowed):
            yield _finding(case, left, right, demands)
            return


def _demands(error: str) -> Iterator[Demand]:
    text = BREAK.sub(" ", error)
    for match in BY_PACKAGE.finditer(text):
        release = match["release"] or match["pin"] or ""
        if release and _name(match["what"]) != "python":  # without a release nothing better can be named
            yield Demand(_name(match["what"]), _range(match["range"]), _name(match["who"]), release)
    for match in BY_USER.finditer(text):
        for one in ONE.finditer(match["all"]):
            yield Demand(_name(one["what"]), _range(one["range"]), "", "")


def _name(text: str) -> str:
    return aliases.normalise(text.partition("[")[0])


def _range(text: str) -> str:
    return text.replace(" ", "").strip(",.")


def _meet(left: str, right: str) -> bool:
    return versions.specifiers(left) is None or versions.specifiers(right) is None or versions.overlaps(left, right)


def _finding(case: Case, left: Demand, right: Demand, demands: list[Demand]) -> Finding:
    wanted = {demand.what: demand.allowed for demand in demands if not demand.who}
    wanted.update((demand.who, f"=={demand.release}") for demand in demands if demand.who)
    tried = len({(demand.who, demand.release) for demand in demands if demand.who == left.who}) > 1
    ways = [way for one, other in ((left, right), (right, left)) for way in _ways(case, one, other, wanted)]
    ways.sort(key=lambda way: any(_goes_back(demand, way) for demand in (left, right)))
    remedies = [" and ".join(f"{package}{allowed}" for package, allowed in way.items()) for way in ways]
    named: dict[str, str | None] = {demand.who: demand.release for demand in (left, right) if demand.who}
    return Finding(
        rule="no-solution",
        title=f"{left.words}, and {right.words}",
        packages={**named, left.what: case.version(left.what)},
        severity="resolve",
        confidence="possible" if tried else "likely",
        evidence=[f"the resolver says both, and no release of {left.what} meets both"],
        remedy=remedies or [f"drop one of the two requirements on {left.what}"],
        ways=ways,
        ranges={name: [f"=={release}"] for name, release in named.items()},
        shown=EXPLAINS,
        weight=1.0,
    )


def _ways(case: Case, demand: Demand, other: Demand, wanted: dict[str, str]) -> Iterator[dict[str, str]]:
    """Another release of the package that requires it; or what the user requires is changed to fit."""
    if not demand.who:
        return
    release = _other_release(case, demand, {**wanted, other.what: other.allowed})
    if release is not None:
        beside = {other.who: f"=={other.release}"} if other.who else {}
        yield {demand.who: f"=={release}", **beside, demand.what: other.allowed}
    if not other.who:
        yield {demand.who: f"=={demand.release}", demand.what: demand.allowed}


def _goes_back(demand: Demand, way: dict[str, str]) -> bool:
    """Does it take the package that demands it back to an earlier release?"""
    here, there = versions.parse(demand.release), versions.parse(way.get(demand.who, "").lstrip("="))
    return here is not None and there is not None and there < here


def _other_release(case: Case, demand: Demand, wanted: dict[str, str]) -> str | None:
    """The nearest later release of a package that goes with what is wanted, else the nearest earlier one."""
    here = versions.parse(demand.release)
    if here is None:
        return None
    known = {**case.knowledge.requires(demand.who), **published.releases(demand.who)}
    fitting = []
    for release, lines in known.items():
        parsed = versions.parse(release)
        if parsed is None or parsed == here or parsed.is_prerelease:
            continue
        needs = [need for need in map(versions.requirement, lines) if need and "extra" not in str(need.marker)]
        wants = [(str(need.specifier), wanted.get(_name(need.name), "")) for need in needs]
        if demand.what in {_name(need.name) for need in needs} and all(_meet(*pair) for pair in wants):
            fitting.append(parsed)
    later = [each for each in fitting if each > here]
    earlier = [each for each in fitting if each < here]
    return str(min(later)) if later else str(max(earlier)) if earlier else None


def other_python(case: Case) -> Iterator[Finding]:
    """The releases that were asked for are for another Python, as uv says."""
    match = next(reversed(list(OTHER_PYTHON.finditer(case.error))), None)
    if match is None or versions.within(_range(match["need"]), match["have"]) is not False:
        return
    allowed = _range(match["need"])
    yield Finding(
        rule="other-python",
        title=f"the releases that were asked for need Python {allowed}, and {match['have']} runs",
        packages={},
        severity="resolve",
        confidence="likely",
        evidence=[f"the error says: {match.group()}"],
        remedy=[f"an environment with Python {allowed}: uv venv --python '{allowed}'"],
        setting=True,
        shown=EXPLAINS,
        weight=0.5,
    )
