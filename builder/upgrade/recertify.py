"""Moving a stack on: a candidate lock is built and run aside, and replaces the old one only when all is green.

Red, everything stays as it was, the culprit is looked for, and a report says what broke.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement

from builder.base import errors, sources, text
from builder.base.project import Project, write
from builder.base.text import markdown
from builder.bisect import draft, reproducer
from builder.bisect import packages as bisect_packages
from builder.bisect.bisection import Journal, Said
from builder.bisect.packages import Found, Question
from builder.bisect.sides import Between
from builder.certify import certificate, certify
from builder.certify.certificate import ProbeResult, Statement
from builder.certify.certify import Options
from builder.certify.transcript import Event
from builder.image import render
from builder.image.buildx import Step
from builder.intent import stack
from builder.intent.advisory import Advisory
from builder.lock import audit, lockfile, resolve
from builder.lock.audit import Finding
from builder.lock.lockfile import Lock
from builder.upgrade import aside, compare, difference, outdated
from builder.upgrade.aside import Aside
from builder.upgrade.compare import Worse
from builder.upgrade.difference import Difference

Outcome = Literal["green", "nothing", "unresolvable", "unsound", "not built", "red", "worse"]


@dataclass
class Result:
    """What came of it. `said` is what uv or the build had to say; `findings` what the audit found."""

    name: str
    outcome: Outcome
    old: Lock
    new: Lock | None = None
    difference: Difference | None = None
    said: str = ""
    findings: list[Finding] = field(default_factory=list)
    statement: Statement | None = None
    before: Statement | None = None
    worse: list[Worse] = field(default_factory=list)
    found: Found | None = None
    no_culprit: str = ""  # why none was found
    reproducer: Path | None = None
    advisory: Path | None = None
    report: Path | None = None

    @property
    def red(self) -> list[ProbeResult]:
        """The probes that did not pass."""
        probes = self.statement.predicate.probes if self.statement else []
        return [one for one in probes if one.outcome not in ("passed", "not-run")]


@dataclass(frozen=True)
class Watching:
    """Who is told what is under way."""

    step: Callable[[Step], None]
    event: Callable[[Event], None]

    def say(self, what: str) -> None:
        """One thing, without a count."""
        self.step(Step(0, 0, what))


def run(
    home: Project, name: str, upgrade: Sequence[str], request: Options, advisories: Sequence[Advisory], scratch: Path,
    watching: Watching,
) -> Result:  # fmt: skip
    """Try an upgrade. The caller holds the stack."""
    aside.finish(home, name, scratch)
    old = lockfile.load(home, name)
    folder = scratch / "candidate"
    made = aside.make(home, name, folder)
    try:
        result = _try(made, old, upgrade, request, advisories, scratch, watching)
    finally:
        # Environments and images of a candidate that did not make it.
        shutil.rmtree(made.state, ignore_errors=True)
    if result.outcome not in ("green", "nothing"):
        result.report = home.state / "recertify" / f"{name}.md"
        write(result.report, report(result), scratch)
    return result


def _try(
    made: Aside, old: Lock, upgrade: Sequence[str], request: Options, advisories: Sequence[Advisory], scratch: Path,
    watching: Watching,
) -> Result:  # fmt: skip
    name, result = old.name, Result(old.name, "nothing", old)
    watching.say("resolving the candidate")
    try:
        _resolve(made, old, upgrade, scratch)
    except errors.BadInputError as error:
        if "no solution" not in error.what:
            raise
        result.outcome, result.said = "unresolvable", outdated.in_short(error.what.partition("\n")[2])
        return result
    new = lockfile.load(made, name)
    if new.digest == old.digest:
        return result
    result.new = new
    watching.say("comparing the two locks")
    result.difference = difference.of(old, new, advisories, scratch)
    watching.say("auditing the candidate")
    result.findings = audit.sound(new, scratch)
    if result.findings:
        result.outcome = "unsound"
        return result
    write(made.dockerfile(name), render.dockerfile(made, new), scratch)
    try:
        outcome = certify.run(made, new, replace(request, force=True), scratch, watching.step, watching.event)
    except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
        raise
    except errors.VettedError as error:
        result.outcome, result.said = "not built", str(error)
        return result
    result.statement = outcome.statement
    path = certificate.path(made.of, name, request.device, request.engine)
    result.before = certificate.read(path) if path.is_file() else None
    if outcome.certificate is None:
        result.outcome = "red"
        _bisect(made, result, result.red[0] if result.red else None, None, advisories, scratch, watching)
        return result
    result.worse = compare.worse(result.before, result.statement) if result.before else []
    if result.worse:
        result.outcome = "worse"
        _bisect_worse(made, result, advisories, scratch, watching)
        return result
    watching.say("putting it in place")
    aside.adopt(made, scratch)
    result.outcome = "green"
    return result


def _resolve(made: Aside, old: Lock, upgrade: Sequence[str], scratch: Path) -> None:
    """Write the candidate's stack.toml and lock. Raises BadInputError for what cannot be asked, or has no solution."""
    name = old.name
    if list(upgrade) == ["all"]:
        resolve.make(made, name, old.stack, scratch, [])
        return
    pins, others = _asked(old, upgrade)
    if pins:
        _move_pins(made.stack_dir(name) / "stack.toml", old, pins, scratch)
    # Nothing named: all that no pin holds. An empty list would move Debian's packages as well.
    resolve.make(made, name, stack.load(made, name), scratch, (others or None) if upgrade else list(old.versions))


def _asked(old: Lock, upgrade: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The pins to move, to a version or ("") as far as the ranges allow; and the names that no pin holds."""
    pins: dict[str, str] = {}
    others = []
    for line in upgrade:
        try:
            asked = Requirement(line)
        except InvalidRequirement as error:
            raise errors.BadInputError(f"{line!r} is not a package to upgrade", next_step="--upgrade trl") from error
        name = lockfile.normalise(asked.name)
        version = str(asked.specifier).removeprefix("==") if str(asked.specifier).startswith("==") else ""
        if asked.specifier and not version:
            raise errors.BadInputError(f"{line!r}: write one version, or none", next_step=f"--upgrade {name}")
        if "==" in old.stack.packages.get(name, ""):
            if not version and "+" in old.versions.get(name, ""):
                raise errors.BadInputError(
                    f"{name} {old.versions[name]} is a build that the index does not list: name the version",
                    next_step=f"--upgrade {name}==VERSION+{old.versions[name].partition('+')[2]}",
                )
            pins[name] = version
        elif name == "debian" or (name in old.versions and not version):
            others.append(name)
        else:
            raise errors.BadInputError(
                f"{line}: no pin of {old.name}" + (", so uv decides its version" if name in old.versions else ""),
                next_step=f"vetted outdated {old.name}",
            )
    return pins, others


def _move_pins(path: Path, old: Lock, pins: dict[str, str], scratch: Path) -> None:
    """Write the new versions into stack.toml, and leave all else as the person wrote it."""
    asked = old.stack
    for name, version in pins.items():
        if version:
            asked = outdated.moved(asked, name, version)
    free = [name for name, version in pins.items() if not version]
    if free:
        lines = [f"{name}>={old.versions[name]}" if name in free else line for name, line in asked.packages.items()]
        found, conflict = outdated.resolved(asked, scratch, lines)
        if conflict:
            raise errors.BadInputError(f"the stack has no solution\n{conflict}")
        for name in free:
            asked = outdated.moved(asked, name, found[name])
    text = path.read_text(encoding="utf-8")
    for name in pins:
        was, will = old.stack.packages[name], asked.packages[name]
        text, count = re.subn(f"([\"']){re.escape(was)}\\1", lambda _, will=will: f'"{will}"', text)  # type: ignore[misc]
        if count != 1:
            raise errors.BadInputError(
                f"stack.toml of {old.name} names {was} {count} times", next_step=f"write {will} there, and vetted lock"
            )
    write(path, text, scratch)


def _bisect_worse(
    made: Aside, result: Result, advisories: Sequence[Advisory], scratch: Path, watching: Watching
) -> None:
    """Look for what made a number worse. A time is not bisected: one slow run among many would decide it."""
    first = next((one for one in result.worse if one.probe and one.what != "seconds"), None)
    if first is None or result.before is None:
        result.no_culprit = "only times or sums became worse, which one probe cannot tell from a busy machine"
        return
    before = next(one for one in result.before.predicate.probes if one.name == first.probe)

    def judge(after: ProbeResult) -> Said:
        said = bisect_packages.of_probe(after)
        if said.outcome != "green":
            return said
        found = [one for one in (*compare.agreement(before, after), *compare.memory(before, after))
                 if one.what == first.what]  # fmt: skip
        return replace(said, outcome="red", fault=first.what, reason=str(found[0])) if found else said

    _bisect(made, result, before, judge, advisories, scratch, watching, str(first))


def _bisect(
    made: Aside, result: Result, probe: ProbeResult | None, judge: Callable[[ProbeResult], Said] | None,
    advisories: Sequence[Advisory], scratch: Path, watching: Watching, about: str = "",
) -> None:  # fmt: skip
    """Name the culprit of a red run, with a reproducer and a draft; say why where there is none to name."""
    assert result.new is not None
    home = made.of
    if probe is None:
        result.no_culprit = "nothing ran"
        return
    own = scratch / "bisect"
    own.mkdir()
    question = Question(probe.name, judge=judge, about=about)
    try:
        between = Between(result.old, result.new, "")
        if not between.changes:
            result.no_culprit = "no distribution changed"
            return
        identity = sources.copy(home.smoke, own / "suite")
        between.name = bisect_packages.key(between, question, identity)
        journal = Journal.open(home, between.name, own)
        search = bisect_packages.Search(home, between, question, journal, own, watching.say, own / "suite")
        result.found = search.run(advisories)
        result.reproducer = reproducer.make(home, result.found, question, journal.folder / "reproducer", own)
        result.advisory = draft.make(home, result.found, question, journal.folder, own)
    except (errors.NetworkError, errors.StorageError):
        raise
    except errors.VettedError as error:
        result.no_culprit = error.what


WORDS = {
    "unresolvable": "cannot be resolved",
    "unsound": "resolves, but not soundly",
    "not built": "cannot be built or installed",
    "red": "does not pass the suite",
    "worse": "passes, but with numbers that became worse",
}


def report(result: Result) -> str:
    """What happened, as Markdown."""
    lines = [f"# {result.name}: the candidate {WORDS.get(result.outcome, result.outcome)}", ""]
    lines += [f"The lock stays {result.old.digest}.", ""]
    if result.said:
        lines += [*text.block(result.said), ""]
    if result.findings:
        lines += [*(f"- {markdown(finding.what)}; fix: {markdown(finding.fix)}" for finding in result.findings), ""]
    if result.red:
        lines += ["## What broke", ""]
        for probe in result.red:
            lines += [f"- **{markdown(probe.name)}** {probe.outcome}: {markdown(probe.reason or 'no reason given')}"]
            lines += [f"  It matters: {markdown(probe.matters)}."] if probe.matters else []
        lines.append("")
    if result.worse:
        lines += ["## What became worse", "", *(f"- {markdown(str(one))}" for one in result.worse), ""]
    if result.found:
        lines += ["## The culprit", "", *(f"- {markdown(str(one))}" for one in result.found.culprits)]
        lines += [f"- {markdown(str(one))}, because they require it" for one in result.found.along]
        lines += ["", f"Proved by running both sets: {markdown(result.found.said.reason)}", ""]
    elif result.no_culprit:
        lines += ["## The culprit", "", f"Not found: {markdown(result.no_culprit)}", ""]
    if result.reproducer:
        lines += ["A reproducer that needs only uv:", "", f"    uv run --no-project {result.reproducer}", ""]
    if result.advisory:
        lines += ["## Draft of an advisory", "", *text.block(result.advisory.read_text(), "toml"), ""]
    if result.difference:
        words = result.difference.words()
        lines += [
            f"## What changed ({len(result.difference.rows)} distributions, {result.difference.total})",
            "",
            *(f"- {markdown(line)}" for line in words),
            "",
        ]
    return "\n".join(lines)
