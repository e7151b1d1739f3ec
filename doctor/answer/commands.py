"""The command for a finding: the smallest change that leaves the bad ranges and contradicts nothing else."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from doctor.base import aliases, versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.know.data import Advisory
from doctor.read.environment import Environment

FAR = 100.0  # the distance to a range when it cannot be told


class Choice(NamedTuple):
    """A fix, the better the smaller: what it breaks, how far it is, its place among the fixes, its requirements."""

    broken: int
    distance: float
    place: int
    requirements: list[str]


def add(case: Case, findings: list[Finding]) -> None:
    """Give every sure finding of an advisory its command, and every command the Python that it is for."""
    advisories = {advisory["id"]: advisory for advisory in case.knowledge.advisories}
    for finding in findings:
        if finding.rule in advisories and finding.sure:
            requirements = _smallest(advisories[finding.rule], case)
            if requirements is not None:
                finding.commands = ["uv pip install " + " ".join(map(shlex.quote, requirements))]
        if case.environment.executable:
            python = shlex.quote(case.environment.executable)
            finding.commands = [_for_python(command, python) for command in finding.commands]


def _for_python(command: str, python: str) -> str:
    for verb in ("install", "uninstall"):
        command = command.replace(f"uv pip {verb}", f"uv pip {verb} --python {python}", 1)
    return command


def _smallest(advisory: Advisory, case: Case) -> list[str] | None:
    """The nearest fix that changes packages, as requirements for uv; None where no fix does."""
    choices = []
    for place, fix in enumerate(advisory["fix"]):
        packages = fix.get("packages", {})
        installed = {name: case.version(name) for name in packages}
        moves = {
            name: range_
            for name, range_ in packages.items()
            if versions.within(range_, installed[name] or "") is not True
        }
        if not moves or any(installed[name] is None for name in moves):
            continue
        broken = sum(_forbidden(case.environment, name, range_) for name, range_ in moves.items())
        distance = sum(_distance(installed[name] or "", range_) for name, range_ in moves.items())
        requirements = [f"{name}{_narrow(installed[name] or '', range_)}" for name, range_ in packages.items()]
        choices.append(Choice(broken, round(distance, 1), place, requirements))
    if not choices:
        return None
    best = min(choices).requirements
    return [*best, *_companions(case, best)]


def _companions(case: Case, requirements: list[str]) -> list[str]:
    """What else must move, because the release that will be installed needs more than is there.

    Without them, uv would take the newest of each, which that release was never tried with.
    """
    companions: dict[str, str] = {}
    for line in requirements:
        for need in _needs(case, versions.Requirement(line)):
            name, allowed = aliases.normalise(need.name), str(need.specifier)
            installed = case.version(name)
            unmet = bool(installed and allowed) and versions.within(allowed, installed or "") is False
            if unmet and name not in companions:
                companions[name] = _narrow(installed or "", allowed)
    chosen = {aliases.normalise(versions.Requirement(line).name) for line in requirements}
    return [f"{name}{range_}" for name, range_ in companions.items() if name not in chosen]


def _needs(case: Case, requirement: versions.Requirement) -> list[versions.Requirement]:
    """What the newest known release in the range of a requirement declares to need."""
    published = case.knowledge.requires(aliases.normalise(requirement.name))
    fitting = [release for release in published if versions.allows(str(requirement.specifier), release)]
    newest = max(fitting, key=lambda release: versions.parse(release) or versions.Version("0"), default="")
    return [versions.Requirement(line) for line in published.get(newest, ()) if "extra ==" not in line]


def _forbidden(environment: Environment, package: str, range_: str) -> int:
    """How many installed packages declare that they need this one outside the range of a fix."""
    count = 0
    for other in environment.packages.values():
        for line in other.requires:
            if not line.lower().startswith(package[:3]) or "extra ==" in line:
                continue
            requirement = versions.requirement(line)
            if requirement and aliases.normalise(requirement.name) == package and requirement.specifier:
                count += not versions.overlaps(str(requirement.specifier), range_)
    return count


def _distance(installed: str, range_: str) -> float:
    """How far a version is from a range: 10 for each major version, 1 for each minor one."""
    own = versions.parse(installed)
    if own is None:
        return FAR
    nearest = FAR
    for clause in versions.specifiers(range_) or ():
        bound = versions.parse(clause.version.replace(".*", ""))
        if bound is not None and (not versions.allows(str(clause), installed) or clause.operator == "=="):
            steps = [abs(here - there) for here, there in zip((*own.release, 0, 0)[:3], (*bound.release, 0, 0)[:3])]
            nearest = min(nearest, steps[0] * 10 + steps[1] + steps[2] / 100)
    return nearest


def _narrow(installed: str, range_: str) -> str:
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
