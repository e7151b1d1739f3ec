"""What is there once ranges were installed: what must move with them, and what would be wrong with the result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from doctor.answer import steps
from doctor.base import versions
from doctor.case import Case
from doctor.checks import compiled, cuda, requires
from doctor.finding import Finding
from doctor.read.distributions import Package

Ranges = dict[str, str]  # by package

ROUNDS = 4  # of packages that others ask for
# Checks of versions alone, beside what is declared: they can be asked about what is not installed yet.
CHECKS = (compiled.foreign_family, cuda.missing_bitsandbytes_binary, requires.vllm_outside_trl_range)
RECHECKED = ("torch-family", "bitsandbytes-binary", "trl-vllm-range")  # the rules of what they find


class Start:
    """A case, and what is wrong with it before anything moves."""

    def __init__(self, case: Case) -> None:
        self.case = replace(case, error="", measured=())
        self.unmet = unmet(self.case)
        self.certain = {
            advisory["id"] for advisory in case.knowledge.advisories if steps.is_certain(advisory, self.case)
        }
        self.findings = {(finding.rule, *finding.packages) for finding in _of_checks(self.case)}


def unmet(case: Case) -> set[tuple[str, str]]:
    """The packages that need another release of a package, each with that one."""
    return {(package.name, need.package) for package, need, _, _ in requires.unmet(case.environment, case.knowledge)}


def remains(finding: Finding, result: Case) -> bool | None:
    """Is what a check of versions found still so in a result? None for what other checks say."""
    if finding.rule == "requires-dist":
        needed, *others = finding.packages
        return any((other, needed) in unmet(result) for other in others)
    if finding.rule in RECHECKED:
        packages = set(finding.packages)
        return any(each.rule == finding.rule and packages == set(each.packages) for each in _of_checks(result))
    return None


def _of_checks(case: Case) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(case) if finding.sure]


def moves(case: Case, name: str, range_: str) -> bool:
    """Is something else there once a range was installed?"""
    return versions.within(range_, case.version(name) or "") is not True or case.version(name) is None


def after(case: Case, state: Ranges) -> Case:
    """The case once these ranges were installed. What a release declares is then that of the published one."""
    packages = dict(case.environment.packages)
    for name, range_ in state.items():
        if moves(case, name, range_):
            packages[name] = Package(name, steps.given(case, name, range_))
    return replace(case, environment=replace(case.environment, packages=packages))


def complete(start: Start, state: Ranges) -> Ranges | None:
    """With what else must move because a release needs it; None where a package that stays needs another range."""
    case = start.case
    full = dict(state)
    for _ in range(ROUNDS):
        moving = {name for name, range_ in full.items() if moves(case, name, range_)}
        result = after(case, full)
        unmet_needs = [
            (package.name, need)
            for package, need, _, _ in requires.unmet(result.environment, result.knowledge)
            if moving & {package.name, need.package} or (package.name, need.package) not in start.unmet
        ]
        if not unmet_needs:
            return full
        for name, need in unmet_needs:
            both = steps.joined(full.get(need.package, versions.ANY), need.allowed)
            both = narrowed(case, {need.package: both})[need.package]
            if name not in moving or not steps.given(case, need.package, both):
                return None
            full[need.package] = both
    return None


def narrowed(case: Case, state: Ranges) -> Ranges:
    """The smallest steps, of what is installed."""
    return {name: steps.narrow(case.version(name) or "", state[name]) if case.version(name) else state[name]
            for name in state}  # fmt: skip


def harm(start: Start, state: Ranges) -> Iterator[Finding]:
    """What is wrong for sure with the result, and was not before."""
    result = after(start.case, state)
    for advisory in result.knowledge.advisories:
        if advisory["id"] not in start.certain and steps.is_certain(advisory, result):
            names = {name for affected in advisory["affected"] for name in affected.get("packages", {})}
            yield Finding(
                rule=advisory["id"], title=advisory["summary"], packages=result.versions(*sorted(names)),
                severity=advisory["severity"], confidence="certain", evidence=[], remedy=[],
            )  # fmt: skip
    yield from (finding for finding in _of_checks(result) if (finding.rule, *finding.packages) not in start.findings)
