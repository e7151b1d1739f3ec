"""A method that is called with the arguments that another release takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from doctor.base import versions
from doctor.base.versions import Version
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know import history, owners
from doctor.know.history import Fact

SIGNATURE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<owner>[A-Z]\w+)\.)?(?P<name>\w+)\(\) (?:missing \d+ required[^\n:]*: '(?P<lacks>\w+)'"
    r"|missing \d+ required|takes (?:from )?\d+ (?:to \d+ )?positional)"
)


class Change(NamedTuple):
    """A release that changed the parameters of a method."""

    package: str
    release: str


def changed_signatures(case: Case) -> Iterator[Finding]:
    """The method's own package, the release that changed it, and the package that calls it."""
    matches = list(SIGNATURE.finditer(case.error))
    if not matches:
        return
    match = matches[-1]
    facts = _facts(case, match)
    package = owners.of_class(match["owner"]) if match["owner"] else facts[0].package if facts else None
    if package is None and not facts:
        return
    change = _last_change(case, facts)
    packages = case.versions(change.package if change else None, package, _caller(case, package))
    evidence = [f"the error says: {match.group()}"]
    yield Finding(
        rule="signature",
        title=f"{match['name']} is called with other arguments than it takes",
        packages=packages,
        severity="crash",
        confidence="possible",
        evidence=[*evidence, f"its parameters changed in {' '.join(change)}"] if change else evidence,
        remedy=[
            *([f"{change.package}<{change.release}, or a later release of what calls it"] if change else []),
            f"releases of {' and '.join(packages)} that belong together",
        ],
        decide=["which release changed its parameters"],
        ranges={change.package: [f">={change.release}"]} if change else {},
        shown=POINTS,
    )


def _facts(case: Case, match: re.Match[str]) -> list[Fact]:
    """What is known of the method's parameters; of the one that the error misses, where it is known."""
    apis, owner, name = case.knowledge.apis, match["owner"], match["name"]
    facts = history.parameters(apis, owner, name) if owner else history.parameters_of_any(apis, name)
    if match["lacks"]:
        return [fact for fact in facts if fact.name.endswith(f"({match['lacks']}")] or facts
    return facts


def _caller(case: Case, package: str | None) -> str | None:
    """The package of the last frame that is not the method's own."""
    others = [frame for frame in dict.fromkeys(owners.frames(case.error)) if frame != package]
    if others:
        return others[-1]
    if package == "trl":
        # The Trainer of transformers calls what TRL overrides, and Unsloth rewrites TRL's trainers.
        return "unsloth" if case.version("unsloth") else "transformers"
    return None


def _last_change(case: Case, facts: list[Fact]) -> Change | None:
    """The last change of a method up to the installed release."""
    changes: list[tuple[int, Version, Change]] = []
    for fact in facts:
        installed = case.version(fact.package)
        releases = [change[1:] for change in fact.changes if change != "+0"]
        changes += [
            (fact.near, versions.parse(release) or Version("0"), Change(fact.package, release))
            for release in releases
            if installed is None or versions.within(f">={release}", installed) is not False
        ]
    return max(changes)[2] if changes else None
