"""A method that is called with the arguments that another release takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from doctor.base import aliases, versions
from doctor.base.versions import Version
from doctor.case import Case
from doctor.finding import EXPLAINS, POINTS, Finding
from doctor.know import history, owners
from doctor.know.history import Fact

SIGNATURE = re.compile(
    r"(?<![A-Za-z0-9])(?:(?P<owner>[A-Z]\w+)\.)?(?P<name>\w+)\(\) (?:missing \d+ required[^\n:]*: '(?P<lacks>\w+)'"
    r"|missing \d+ required|takes (?:from )?\d+ (?:to \d+ )?positional)"
)
# A frame of a package, and a line of it that calls a method: the next one, or one of a notebook's lines around it.
CALL = (
    r"(?:site|dist)-packages/(?P<package>\w+)/[^\n]*"
    r"(?:\n(?![^\n]*-packages/|[ \t]*File |Cell In)[^\n]{{0,300}}){{0,9}}?"
    r"\n[^\n]{{0,300}}\.{name}\((?P<arguments>[^\n]*)"
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
    given = _newly_given(case, match["name"]) if " takes " in match.group() else None
    if given is not None:
        yield _overridden(case, match, given)
        return
    facts = _facts(case, match)
    package = owners.of_class(match["owner"]) if match["owner"] else facts[0].package if facts else None
    if package is None and not facts:
        return
    change = _last_change(case, facts)
    packages = case.versions(change.package if change else None, package, _caller(case, package))
    evidence = [f"the error says: {match.group()}"]
    called = match["owner"] if match["name"] == "__init__" else match["name"]
    yield Finding(
        rule="signature",
        title=f"{called} is called with other arguments than it takes",
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


def _newly_given(case: Case, name: str) -> Fact | None:
    """The argument that the calling package passes only since a release: the override is older."""
    calls = list(re.finditer(CALL.format(name=re.escape(name)), case.error))
    for call in reversed(calls):
        package = aliases.of_module(call["package"])
        for argument in reversed(re.findall(r"[A-Za-z_]\w*", call["arguments"])):
            for fact in history.parameters_in(case.knowledge.apis, package, name, argument):
                if fact.since and fact.in_release(case.version(package) or f">={fact.since}"):
                    return fact
    return None


def _overridden(case: Case, match: re.Match[str], given: Fact) -> Finding:
    package, method = given.package, given.name.partition("(")[0]
    argument, version = given.name.rpartition("(")[2], case.version(given.package)
    return Finding(
        rule="signature",
        title=f"{package} passes {argument} to {method} since {given.since}, and the override does not take it",
        packages=case.versions(package, owners.of_class(match["owner"])),
        severity="crash",
        confidence="likely" if version else "possible",
        evidence=[
            f"the error says: {match.group()}",
            f"in the published releases: {argument} since {given.since}",
            f"the traceback shows the call with {argument}",
        ],
        remedy=[
            f"let the override of {match['name']} take {argument}, or upgrade the package that overrides it",
            f"{package}<{given.since}",
        ],
        ways=[{package: f"<{given.since}"}],
        decide=[] if version else [f"which {package} is installed"],
        ranges={package: [f">={given.since}"]},
        shown=EXPLAINS,
        setting=True,
        weight=1.0,
    )


def _facts(case: Case, match: re.Match[str]) -> list[Fact]:
    """What is known of the method's parameters; of the one that the error misses, where it is known."""
    apis, owner, name = case.knowledge.apis, match["owner"], match["name"]
    if owner and name == "__init__":  # it needs a parameter from the release on that dropped the others
        return history.parameters_of_constructor(apis, owner)
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
