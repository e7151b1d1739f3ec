"""Names that a release brought or dropped: one that copied sources take for granted, one that is newly raised."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know import history, owners

UNDEFINED = re.compile(r"NameError: name '(?P<name>[A-Za-z]\w{3,})' is not defined")
RAISED = re.compile(
    r"(?:^|\] ?:? ?|\) |[EI] {2,})(?:[\w.]+\.)?(?P<name>[A-Z]\w+(?:Error|Exception))(?=:|$)", re.MULTILINE
)
# What users cause, or a machine: an older release fails in the same way under another name.
THEIRS = re.compile(r"OutOfMemory|Repo|Gated|NotFound|HTTP|Offline|Connect|Timeout|Validation|Permission|Interrupt")
COPIED = ("transformers", "accelerate", "trl")  # whose sources others copy


def undefined_names(case: Case) -> Iterator[Finding]:
    """A name that a copy of a package's sources uses without importing it."""
    matches = list(UNDEFINED.finditer(case.error))
    facts = history.offered(case.knowledge.apis, matches[-1]["name"]) if matches else []
    if not facts:
        return
    name = matches[-1]["name"]
    # The shortest way to a name is where a package offers it.
    fact = min(facts, key=lambda fact: (fact.package not in COPIED, len(fact.name)))
    release = fact.changes[-1][1:]
    if case.version(fact.package) and versions.within(f">={release}", case.version(fact.package) or "") is False:
        return
    candidates = (*reversed(owners.frames(case.error)), *owners.REWRITES)
    using = next((package for package in candidates if case.version(package) and package != fact.package), None)
    yield Finding(
        rule="undefined-name",
        title=f"{name} {'came' if fact.since else 'went'} with {fact.package} {release}"
        + (f", which {using} does not expect" if using else ""),
        packages=case.versions(fact.package, using),
        severity="crash",
        confidence="possible",
        evidence=[f"the error says: {matches[-1].group()}"],
        remedy=[f"{fact.package}<{release}, or a later release of the package that uses the name"],
        decide=["whose code uses the name"],
        ranges={fact.package: [f">={release}"]},
        shown=POINTS,
        weight=0.5,
    )


def new_errors(case: Case) -> Iterator[Finding]:
    """An error of a class that came with a release: no earlier release raised it."""
    for name in dict.fromkeys(reversed(RAISED.findall(case.error))):
        facts = history.offered(case.knowledge.apis, name)
        fact = min(facts, key=lambda fact: len(fact.name)) if facts else None
        version = case.version(fact.package) if fact is not None else None
        # Any code raises Python's own errors, whatever a package calls its own.
        if fact is None or not fact.since or THEIRS.search(name) or hasattr(builtins, name):
            continue
        if version and versions.within(f">={fact.since}", version) is False:
            continue
        yield Finding(
            rule="new-error",
            title=f"{fact.package} raises {name} since {fact.since}",
            packages={fact.package: version},
            severity="crash",
            confidence="possible",
            evidence=["in the published releases: " + " ".join(fact.changes)],
            remedy=[f"{fact.package}<{fact.since}, or what the error asks for"],
            decide=["whether an earlier release runs this"],
            ranges={fact.package: [f">={fact.since}"]},
            shown=POINTS,
            weight=0.3,
        )
        return
