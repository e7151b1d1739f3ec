"""One command for everything that is certain: releases that fix it together and bring nothing new.

Each finding has ways out of its own. Here one is chosen for each of them, so that all ranges fit, every release that
would be installed gets what it declares to need, and no advisory is certain of the result.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from doctor.answer import commands, outcome, steps
from doctor.answer.outcome import Ranges, Start
from doctor.answer.shell import Shell
from doctor.base import aliases, versions
from doctor.case import Case
from doctor.finding import EXPLAINS, Finding
from doctor.know.data import Advisory

MOST = 12  # findings that are fixed together
WIDTH = 32  # sets of ranges that are looked at further
OPTIONS = ("--torch-backend=auto", "--reinstall-package")  # of commands that can be one; the last has a value
DEEPER = 2  # advisories that are certain of a result, and fixed on the way


class Pin(NamedTuple):
    """A package of the command: its version, its range, and for which findings it is there; none: others need it."""

    package: str
    installed: str | None
    range_: str
    fixes: list[Finding]


@dataclass
class Together:
    """The command, what it fixes, and what it cannot fix: that needs other releases of the same packages."""

    command: str
    pins: list[Pin]
    fixes: list[Finding]
    left: list[Finding] = field(default_factory=list)


class Duty(NamedTuple):
    """A finding to fix and its ways out, each with its rank: the smaller, the better."""

    finding: Finding
    ways: list[tuple[int, Ranges]]
    options: Sequence[str] = ()  # of the command


def find(case: Case, findings: Iterable[Finding], shell: Shell) -> Together | None:
    """The command, where more than one finding can be fixed by releases; to be asked before commands are added."""
    findings = list(findings)
    duties = [duty for duty in (_duty(case, finding) for finding in findings if _counts(finding)) if duty.ways][:MOST]
    if len(duties) < 2:
        return None
    start = Start(case)
    kept, ranges = duties, _solve(start, duties)
    if ranges is None:  # as many as go together, the first ones first
        kept, ranges = _added(start, [], {}, duties)
    moving = {name for name in ranges if outcome.moves(case, name, ranges[name])}
    # What is only likely moves no package that stays otherwise, but it has a say in where the others move to.
    others = (_duty(case, finding) for finding in findings if finding.sure and not _counts(finding))
    likely = [duty for duty in others if any(moving.intersection(way) for _, way in duty.ways)]
    kept, ranges = _added(start, kept, ranges, likely)
    moving = {name for name in ranges if outcome.moves(case, name, ranges[name])}
    if not moving:
        return None
    pins = [_pin(case, kept, name, ranges[name]) for name in sorted(moving)]
    fixes = [duty.finding for duty in kept]
    for finding in fixes:  # fixed by what moves for others: named where one of its own packages moves
        if not any(finding in pin.fixes for pin in pins):
            for pin in pins:
                pin.fixes.extend([finding] if pin.package in finding.packages else [])
    for pin in pins:
        pin.fixes.sort(key=fixes.index)
    lines = [pin.package if pin.range_ == versions.ANY else f"{pin.package}{pin.range_}" for pin in pins]
    options = list(dict.fromkeys(shlex.join(duty.options) for duty in kept if duty.options))
    command = " ".join(["uv pip install", *options, *map(shlex.quote, lines)])
    command = commands.written(command, case, shell)
    return Together(command, pins, fixes, [duty.finding for duty in duties if duty not in kept])


def _added(start: Start, kept: list[Duty], ranges: Ranges, others: Iterable[Duty]) -> tuple[list[Duty], Ranges]:
    """With each of the others that goes together with those before it."""
    for duty in others:
        more = _solve(start, [*kept, duty])
        if more is not None:
            kept, ranges = [*kept, duty], more
    return kept, ranges


def _counts(finding: Finding) -> bool:
    """Is it certain, or what explains the error?"""
    return finding.confidence == "certain" or finding.apart or (finding.sure and finding.shown == EXPLAINS)


def _duty(case: Case, finding: Finding) -> Duty:
    """The ways out of a finding that this environment can go."""
    advisory = _advisory(case, finding.rule)
    if advisory is not None:
        moved = commands.is_moved(case, finding)
        ways = [
            (int(moved and any(steps.older(case.version(name) or "", range_) for name, range_ in way.items())), way)
            for way in commands.fixes(advisory, finding, case)
        ]
    elif finding.commands:
        # What a check of versions says may be fixed by the others' ways: it is looked at in the result.
        way, options = _of_command(finding.commands[0])
        ways = [(0, way)] if way else []
        ways += [(0, {})] if finding.rule in ("requires-dist", *outcome.RECHECKED) else []
        ways += [(0, other) for other in _of_the_other(case, finding)] if finding.rule == "requires-dist" else []
        return Duty(finding, ways, options)
    else:
        places = {" ".join(sorted(way)): place for place, way in reversed(list(enumerate(finding.ways)))}
        ways = [(places[" ".join(sorted(way))], way) for way in finding.ways]
        if finding.rule == "reported":
            ways = [(rank, way) for rank, way in ways if not commands.goes_far_back(case, way)]
    return Duty(finding, [(rank, way) for rank, way in ways if all(case.version(name) for name in way)])


def _of_the_other(case: Case, finding: Finding) -> Iterator[Ranges]:
    """Instead of what a package needs, other releases of that package, which need what is there: the nearest ones."""
    needed, *others = finding.packages
    for name in others:
        releases, fitting = steps.releases(case, name), steps.releases_for(case, name, needed)
        # Those without a gap between them, from the first that fits to the last.
        places = [place for place, release in enumerate(releases) if release in fitting]
        runs = [places[at : at + count] for at, count in steps.runs(places)]
        spans = [(releases[run[0]], releases[run[-1]]) for run in runs]
        ranges = [f">={low}" if high == releases[-1] else f">={low},<={high}" for low, high in spans]
        installed = case.version(name) or ""
        for range_ in sorted(ranges, key=lambda range_: steps.distance(installed, range_))[:1]:
            yield {name: range_}


def _advisory(case: Case, rule: str) -> Advisory | None:
    return next((advisory for advisory in case.knowledge.advisories if advisory["id"] == rule), None)


def _of_command(command: str) -> tuple[Ranges, list[str]]:
    """The ranges that a command installs, and its options; no range where it does more than that."""
    words = shlex.split(command)
    options, requirements = [], []
    if words[:3] != ["uv", "pip", "install"]:
        return {}, []
    for before, word in zip(words[2:], words[3:]):
        if word in OPTIONS or before in OPTIONS[1:]:
            options.append(word)
        else:
            requirements.append(versions.requirement(word))
    if any(line is None for line in requirements):
        return {}, []
    return {aliases.normalise(line.name): str(line.specifier) or versions.ANY for line in requirements if line}, options


def _solve(start: Start, duties: Sequence[Duty], depth: int = 0) -> Ranges | None:
    """The smallest change that fixes all of them; None where there is none."""
    case = start.case
    states: list[tuple[int, Ranges]] = [(0, {})]
    for duty in duties:
        wider = [
            (sum_ + rank, merged)
            for (sum_, state), (rank, way) in itertools.product(states, duty.ways)
            if (merged := _merged(case, state, way)) is not None
        ]
        worst_first = sorted(wider, key=lambda item: -item[0])
        distinct = {tuple(sorted(state.items())): (sum_, state) for sum_, state in worst_first}
        states = sorted(distinct.values(), key=lambda item: (item[0], _far(case, item[1])))[:WIDTH]
    good: list[tuple[tuple[int, float], Ranges]] = []
    harmed: list[Duty] = []
    for sum_, state in states:
        for ranges in (outcome.narrowed(case, state), state):
            full = outcome.complete(start, ranges)
            if full is None or not _all_fixed(case, duties, full):
                continue
            harm = [_duty(outcome.after(case, full), finding) for finding in outcome.harm(start, full)]
            harmed = harmed or harm
            if not harm:
                good.append(((sum_, _far(case, full)), full))
                break
    if good:
        return _pruned(start, duties, min(good, key=lambda item: item[0])[1])
    if harmed and depth < DEEPER:  # what the best of them would bring is fixed with them
        return _solve(start, [*duties, *harmed], depth + 1)
    return None


def _pruned(start: Start, duties: Sequence[Duty], full: Ranges) -> Ranges:
    """Without what moves for nothing: each finding still has a way out, and nothing else is wrong."""
    case = start.case
    for name in sorted(full, key=lambda name: -_far(case, {name: full[name]})):
        fewer = {other: range_ for other, range_ in full.items() if other != name}
        after = outcome.after(case, fewer)
        leads_out = (
            any(all(versions.within(way[name], after.version(name) or "") for name in way) for _, way in duty.ways)
            for duty in duties
        )
        if all(leads_out) and outcome.complete(start, fewer) == fewer and _all_fixed(case, duties, fewer):
            full = full if any(outcome.harm(start, fewer)) else fewer
    return full


def _merged(case: Case, state: Ranges, way: Ranges) -> Ranges | None:
    """The ranges of a state and a way; None where no release is in both."""
    merged = dict(state)
    for name, range_ in way.items():
        merged[name] = steps.joined(merged.get(name, versions.ANY), range_)
        if not steps.given(case, name, merged[name]):
            return None
    return merged


def _far(case: Case, state: Ranges) -> float:
    moving = (name for name in state if outcome.moves(case, name, state[name]))
    return round(sum(steps.distance(case.version(name) or "", state[name]) for name in moving), 1)


def _all_fixed(case: Case, duties: Sequence[Duty], state: Ranges) -> bool:
    """Is every finding gone that can be looked for again, and does each range hold for the versions that it is of?"""
    after = outcome.after(case, state)
    for duty in duties:
        finding, way = duty.finding, duty.ways[0][1] if duty.ways else {}
        remains = outcome.remains(finding, after)
        if remains is None and finding.commands:  # made for the other packages as they are
            others = (name for name in finding.packages if name not in way)
            remains = any(after.version(name) != finding.packages[name] for name in others)
        if remains:
            return False
    return True


def _pin(case: Case, duties: Sequence[Duty], name: str, range_: str) -> Pin:
    """A package of the command. It is there for the findings that a way out of leads over it."""
    given = steps.given(case, name, range_)
    fixes = [
        duty.finding
        for duty in duties
        if any(name in way and versions.allows(way[name], given) for _, way in duty.ways)
    ]
    return Pin(name, case.version(name), range_, fixes)
