"""The command for a finding: the smallest change that leaves the bad ranges and contradicts nothing else."""

from __future__ import annotations

import shlex
from typing import Any

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from doctor.read.environment import Environment


def add(case: Case, found: list[Finding]) -> None:
    """Give every finding of an advisory its command, and every command the Python that it is for."""
    known = {one["id"]: one for one in case.data.get("advisories", ())}
    for one in found:
        if one.rule in known and one.sure:
            best = _smallest(known[one.rule], case)
            if best is not None:
                one.commands = ["uv pip install " + " ".join(shlex.quote(each) for each in best)]
        target = case.environment.executable
        if target:
            one.commands = [
                command.replace("uv pip install", f"uv pip install --python {shlex.quote(target)}", 1).replace(
                    "uv pip uninstall", f"uv pip uninstall --python {shlex.quote(target)}", 1
                )
                for command in one.commands
            ]


def _smallest(advisory: dict[str, Any], case: Case) -> list[str] | None:
    """Of the fixes that are packages the nearest, as requirements for uv."""
    choices: list[tuple[tuple[float, ...], list[str]]] = []
    for place, fix in enumerate(advisory["fix"]):
        packages = fix.get("packages", {})
        moves = {name: wanted for name, wanted in packages.items()
                 if versions.within(wanted, case.environment.version(name) or "") is not True}  # fmt: skip
        if not packages or not moves or any(case.environment.version(name) is None for name in moves):
            continue
        broken = sum(_forbidden(case.environment, name, wanted) for name, wanted in moves.items())
        away = sum(_distance(case.environment.version(name) or "", wanted) for name, wanted in moves.items())
        lines = [f"{name}{_narrow(case.environment.version(name) or '', wanted)}" for name, wanted in packages.items()]
        choices.append(((broken, round(away, 1), place), lines))
    if not choices:
        return None
    best = min(choices)[1]
    return [*best, *_companions(case, best)]


def _companions(case: Case, lines: list[str]) -> list[str]:
    """What else must move, because the release that is installed then asks for more than is there.

    Left to itself, uv would take the newest of them, which that release has never met.
    """
    found: dict[str, str] = {}
    for line in lines:
        requirement = versions.Requirement(line)
        name = versions.name(requirement.name)
        published: dict[str, list[str]] = case.apis.get(name, {}).get("requires", {})
        fitting = [one for one in published if versions.allowed(str(requirement.specifier), one)]
        newest = max(fitting, key=lambda one: versions.parse(one) or versions.Version("0"), default=None)
        for each in published.get(newest or "", ()):
            if "extra ==" in each:
                continue
            wanted = versions.Requirement(each)
            other, have = versions.name(wanted.name), case.environment.version(versions.name(wanted.name))
            asked = str(wanted.specifier)
            if have and asked and versions.within(asked, have) is False and other not in found:
                found[other] = _narrow(have, asked)
    named = {versions.name(versions.Requirement(line).name) for line in lines}
    return [f"{name}{wanted}" for name, wanted in found.items() if name not in named]


def _forbidden(environment: Environment, name: str, wanted: str) -> int:
    """How many installed packages declare that they want this one outside the range of a fix."""
    count = 0
    for package in environment.packages.values():
        for line in package.requires:
            if not line.lower().startswith(name[:3]) or "extra ==" in line:
                continue
            requirement = versions.requirement(line)
            if requirement and versions.name(requirement.name) == name and requirement.specifier:
                count += not versions.overlaps(str(requirement.specifier), wanted)
    return count


def _distance(have: str, wanted: str) -> float:
    """How far a range is: in major versions, then in minor ones."""
    own = versions.parse(have)
    if own is None:
        return 100.0
    nearest = 100.0
    for clause in versions.specifiers(wanted) or ():
        bound = versions.parse(clause.version.replace(".*", ""))
        if bound is not None and (not versions.allowed(str(clause), have) or clause.operator == "=="):
            steps = [abs(a - b) for a, b in zip((*own.release, 0, 0)[:3], (*bound.release, 0, 0)[:3])]
            nearest = min(nearest, steps[0] * 10 + steps[1] + steps[2] / 100)
    return nearest


def _narrow(have: str, wanted: str) -> str:
    """A range without an upper end, cut to the first minor version that has the fix: the smallest step."""
    clauses = list(versions.specifiers(wanted) or ())
    lower = [clause for clause in clauses if clause.operator in (">=", ">")]
    if len(clauses) != 1 or not lower or versions.allowed(wanted, have):
        return wanted
    bound = versions.parse(lower[0].version)
    if bound is None:
        return wanted
    major, minor = (*bound.release, 0)[:2]
    return f"{wanted},<{major}.{minor + 1}"
