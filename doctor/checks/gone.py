"""Ways out of a name that is gone: what asks for it is the older party, so that is changed first.

A package that asks is upgraded; the user's own file is edited. An older release of what lost the name comes last. It is
the command where no release of what asks is known to do without the name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from doctor.base import versions
from doctor.case import Case
from doctor.checks import asking, ranges
from doctor.checks.asking import Caller
from doctor.finding import EXPLAINS, POINTS, Finding
from doctor.know import history, owners, renames
from doctor.know.data import Knowledge
from doctor.know.history import Fact
from doctor.know.owners import Frame

BACK = "or go back: "  # how the remedy begins that is an older release
CALL = re.compile(r"(?P<owner>[\w.]+)\((?P<parameter>\w+)")


class Missing(NamedTuple):
    """A name that an error says is not there."""

    package: str
    name: str  # in words: "vllm_mode in trl", "the parameter vllm_mode of GRPOConfig"
    fact: Fact | None = None  # when it came and went, where that is known
    own: bool = True  # of a class of the package itself, not of one that somebody derived from it
    written: str = ""  # what its caller writes: `module:name`, `callee(keyword`


class Edit(NamedTuple):
    """What to write instead, and how that is known; "" for both where only the place is known."""

    words: str
    because: str


def place(error: str, knowledge: Knowledge) -> Frame | None:
    """The place that asked, as the traceback says it."""
    return owners.last_frame(error, {*knowledge.apis, *knowledge.uses})


def of_name(case: Case, package: str, written: str, installed: str | None) -> Edit | None:
    """What became of `owner(parameter` or `module:name` in the installed release; None where nothing tells."""
    call = CALL.fullmatch(written)
    if call is None:
        return _of_import(case, package, written, installed)
    apis, owner, parameter = case.knowledge.apis, call["owner"].rpartition(".")[2], call["parameter"]
    config = renames.of_config(apis, package, owner, parameter, installed) if installed else None
    if config is not None:
        return Edit(
            f"give {config[1]} to {config[0]}, and not {parameter} to {owner}",
            f"{config[0]} of {package} {installed} has the parameter {config[1]}",
        )
    renamed = renames.of_parameter(apis, package, owner, parameter, installed)
    if renamed is None:
        return None
    many = f"{renamed.owners} classes of it" if renamed.owners > 1 else owner
    return Edit(
        f"write {renamed.name} instead of {parameter}",
        f"{package} has {renamed.name} for {parameter} since {renamed.since}: {many} changed the one for the other",
    )


def _of_import(case: Case, package: str, written: str, installed: str | None) -> Edit | None:
    """Another module of the same package that has the name."""
    module, _, name = written.partition(":")
    facts: list[Fact] = history.offered(case.knowledge.apis, name) if name and installed else []
    there = [
        fact.name.partition(":")[0]
        for fact in facts
        if fact.package == package and fact.in_release(installed or "") and fact.name.partition(":")[0] != module
    ]
    if not there:
        return None
    place = min(there, key=len)
    return Edit(f"import {name} from {place} instead of {module}", f"{package} {installed} has {name} in {place}")


def _as_others_did(case: Case, missing: Missing) -> Edit | None:
    """A name that a package used once and uses no more is an old one, even where no release is known that had it."""
    once = [(name, uses[missing.written]) for name, uses in case.knowledge.uses.items() if missing.written in uses]
    if not once or not missing.written:
        return None
    name, release = once[0]
    return Edit(
        f"do without {missing.name}", f"it is an old name: {name} asked for it, too, and since {release} does not"
    )


def put_first(finding: Finding, edit: Edit | None, frame: Frame | None, name: str) -> None:
    """Make the edit the first remedy. An older release is then no command any more, but a remedy in words."""
    where = f"in your own file, {frame.words}: " if frame is not None else "in your own file: "
    what = edit.words if edit is not None else f"do without {name}"
    finding.remedy = [f"{where}{what}", *(remedy for remedy in finding.remedy if remedy.startswith(BACK))]
    finding.ways, finding.setting = [], True
    if frame is not None:
        finding.evidence.append(f"the traceback ends in your own file: {frame.words}")
    if edit is not None:
        finding.evidence.append(edit.because)


def is_gone(fact: Fact, version: str | None) -> bool:
    """Had the package the name before this release, and no later one has it again? It is not too old for it then."""
    drops = [change[1:] for change in fact.changes if change[0] == "-"]
    return fact.changes[-1][0] == "-" and any(
        version is None or versions.within(f">={release}", version) for release in drops
    )


def edit(case: Case, missing: Missing, finding: Finding, frame: Frame | None) -> bool:
    """What a script asks for is changed there, if the package had it once. Without a frame, only if it is known how."""
    installed = case.version(missing.package)
    if missing.fact is not None and (finding.rule != "moved-name" or not is_gone(missing.fact, installed)):
        return False
    if missing.fact is None and frame is None and not CALL.fullmatch(missing.written):
        return False  # another module with such a name says little about whose import it is
    known = of_name(case, missing.package, missing.written, installed) if missing.written else None
    if known is None and missing.fact is None and frame is not None:
        known = _as_others_did(case, missing)
    if known is None and (frame is None or missing.fact is None):
        return False
    if missing.fact is None:
        finding.remedy, finding.ranges, finding.shown = [], {}, EXPLAINS
        finding.confidence = "likely" if installed else "possible"
        finding.decide = [] if installed else [f"which {missing.package} is installed"]
    put_first(finding, known, frame, missing.name)
    return True


def ask_the_caller(case: Case, missing: Missing, finding: Finding, frame: Frame | None) -> None:
    """A later release of the package that asks for the name is the first way out, where one does without."""
    nothing_else = not (finding.ways or finding.ranges)
    requesting = frame.package if frame is not None else None
    caller = asking.only(case, missing.written, alone=nothing_else) if missing.written else None
    went = missing.fact is not None and is_gone(missing.fact, case.version(missing.package))
    known = (None, missing.package, *case.knowledge.uses)
    if caller is None and went and not finding.ways and requesting not in known:
        # No earlier release is a way out, and it is the older party; whether its newest does without it nobody knows.
        finding.commands = [f"uv pip install --upgrade {requesting}"]
    mine = frame is not None and requesting is None and not (caller and case.version(caller.package))
    if caller is None or caller.package == missing.package or mine:
        return
    finding.packages = {caller.package: case.version(caller.package), **finding.packages}
    finding.ranges = {caller.package: [f"<{caller.release}"], **finding.ranges}
    finding.ways = [{caller.package: f">={caller.release}"}, *finding.ways]
    finding.evidence.append(_evidence_of(case, caller))
    others = [remedy for remedy in finding.remedy if remedy.startswith(BACK)]
    finding.remedy = [f"{caller.package}>={caller.release}, which does without it", *others]
    if requesting == caller.package and case.version(caller.package) is None:  # the list of packages leaves it out
        finding.commands = [ranges.install(f"{caller.package}>={caller.release}")]
    stated = case.version(caller.package) is not None
    if (requesting == caller.package or stated) and finding.shown == POINTS:
        finding.confidence, finding.shown = "likely" if stated else "possible", EXPLAINS
        finding.decide = [] if stated else [f"whether the installed {caller.package} is before {caller.release}"]


def _evidence_of(case: Case, caller: Caller) -> str:
    installed = case.version(caller.package)
    return f"{caller.package} {installed or ''}".strip() + f" asks for it, {caller.release} no longer does"
