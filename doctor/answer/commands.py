"""The command for a finding: the smallest change that leaves the bad ranges and contradicts nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from doctor.answer import steps
from doctor.answer.shell import Shell
from doctor.base import aliases, versions
from doctor.case import Case
from doctor.checks.advisories import involved
from doctor.finding import EXPLAINS, Finding
from doctor.know import cuda, owners
from doctor.know.data import Advisory
from doctor.read.distributions import Package
from doctor.read.environment import Environment

MOVED = re.compile(r"cannot import name|No module named|unexpected keyword argument|has no attribute")
BACK_FAR = 10 * steps.BACK  # ten minor versions or a major one


class Choice(NamedTuple):
    """A fix, the better the smaller: what it breaks, how far it is, its place among the fixes, its requirements."""

    broken: int
    older: bool  # does a package go back?
    distance: float
    place: int
    requirements: list[str]
    harmful: bool  # does it give what an advisory is certain about?


def add(case: Case, findings: list[Finding], shell: Shell | None = None) -> None:
    """Give every sure finding its command, and every command the Python that it is for, as the user's shell has it."""
    shell = shell or Shell()
    advisories = {advisory["id"]: advisory for advisory in case.knowledge.advisories}
    for finding in findings:
        requirements = None
        if finding.sure and finding.rule in advisories:
            moved = is_moved(case, finding)
            there = {*finding.packages, *owners.frames(case.error)}
            unstated = there if moved and not case.environment.complete else set()
            requirements = _smallest(fixes(advisories[finding.rule], finding, case), case, moved, unstated)
        elif finding.sure and finding.ways and not finding.commands:
            requirements = _first(finding.ways, case, careful=finding.rule == "reported")
        if requirements is not None:
            finding.commands = ["uv pip install " + " ".join(map(shlex.quote, requirements))]
        finding.commands = [written(command, case, shell) for command in finding.commands]


def written(command: str, case: Case, shell: Shell) -> str:
    """A command for uv with the Python that it is for, as the user's shell has it."""
    executable = case.environment.executable or case.environment.command_python
    if executable:
        command = _for_python(command, shlex.quote(executable))
    return shell.written(command, executable, cuda.of_torch(case.environment))


def is_moved(case: Case, finding: Finding) -> bool:
    """Does the error miss a name? What asks for it is there, even where a short list leaves it out."""
    return finding.shown == EXPLAINS and MOVED.search(case.error) is not None


def goes_far_back(case: Case, way: dict[str, str]) -> bool:
    """Is a way out many releases behind what is installed?"""
    return any(
        steps.older(case.version(name) or "", range_) and steps.distance(case.version(name) or "", range_) > BACK_FAR
        for name, range_ in way.items()
    )


def fixes(advisory: Advisory, finding: Finding, case: Case) -> list[dict[str, str]]:
    """The fixes of an advisory, without packages of its other combinations that are not involved."""
    ways = [involved(fix.get("packages", {}), advisory, finding.packages, case) for fix in advisory["fix"]]
    return [way for way in ways if way]


def _for_python(command: str, python: str) -> str:
    for verb in ("install", "uninstall"):
        command = command.replace(f"uv pip {verb}", f"uv pip {verb} --python {python}", 1)
    return command


def _smallest(
    ways: list[dict[str, str]], case: Case, moved: bool = False, unstated: Collection[str] = ()
) -> list[str] | None:
    """The nearest way out that changes packages, as requirements for uv; None where none does.

    A name that `moved` is asked for by what is too old: an upgrade of that comes first, however far it is.
    `unstated`: packages that are there, though no version of them is known.
    """
    choices = _choices(ways, case, unstated)
    if not choices:
        return None
    best = min(choices, key=lambda choice: (choice.broken, moved and choice.older, choice.distance, choice.place))
    return None if best.harmful else best.requirements


def _first(ways: list[dict[str, str]], case: Case, careful: bool = False) -> list[str] | None:
    """The first way out that breaks least: their order says which is better. Of two for one package, the nearer.

    `careful`: only one that breaks no other package and does not go far back.
    """
    choices = _choices(ways, case)
    if careful:
        choices = [
            choice for choice in choices if not choice.broken and not (choice.older and choice.distance > BACK_FAR)
        ]
    if not choices:
        return None
    places: dict[str, int] = {}
    for place, way in enumerate(ways):
        places.setdefault(" ".join(sorted(way)), place)
    rank = {choice.place: places[" ".join(sorted(ways[choice.place]))] for choice in choices}
    best = min(choices, key=lambda choice: (choice.broken, rank[choice.place], choice.distance))
    return None if best.harmful else best.requirements


def _choices(ways: list[dict[str, str]], case: Case, unstated: Collection[str] = ()) -> list[Choice]:
    choices = []
    for place, packages in enumerate(ways):
        installed = {name: case.version(name) for name in packages}
        moves = {
            name: range_
            for name, range_ in packages.items()
            if versions.within(range_, installed[name] or "") is not True
        }
        unlisted = {name for name in moves if installed[name] is None}
        if not moves or not unlisted <= set(unstated):
            continue
        broken = sum(_forbidden(case.environment, name, range_) for name, range_ in moves.items())
        distance = sum(
            steps.distance(installed[name] or "", range_) for name, range_ in moves.items() if installed[name]
        )
        requirements = [
            f"{name}{range_ if name in unlisted else steps.narrow(installed[name] or '', range_)}"
            for name, range_ in packages.items()
        ]
        requirements += _companions(case, requirements)
        harm = _harm(case, requirements)
        older = any(steps.older(installed[name] or "", range_) for name, range_ in moves.items())
        choices.append(Choice(broken + harm, older, round(distance, 1), place, requirements, bool(harm)))
    return choices


def _harm(case: Case, requirements: list[str]) -> int:
    """How many advisories are certain of the versions that requirements give, and not of those that are there."""
    packages = dict(case.environment.packages)
    for line in requirements:
        requirement = versions.Requirement(line)
        name = aliases.normalise(requirement.name)
        newest = steps.newest(case, name, str(requirement.specifier))
        if newest:
            packages[name] = Package(name, newest)
    after = replace(case, environment=replace(case.environment, packages=packages))
    return sum(
        steps.is_certain(advisory, after) and not steps.is_certain(advisory, case)
        for advisory in case.knowledge.advisories
    )


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
                companions[name] = steps.narrow(installed or "", allowed)
    chosen = {aliases.normalise(versions.Requirement(line).name) for line in requirements}
    return [f"{name}{range_}" for name, range_ in companions.items() if name not in chosen]


def _needs(case: Case, requirement: versions.Requirement) -> list[versions.Requirement]:
    """What the newest known release in the range of a requirement declares to need."""
    name = aliases.normalise(requirement.name)
    newest = steps.newest(case, name, str(requirement.specifier))
    needs = case.knowledge.requires(name).get(newest, ())
    read = (versions.requirement(line) for line in needs if "extra ==" not in line)
    return [need for need in read if need is not None]


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
