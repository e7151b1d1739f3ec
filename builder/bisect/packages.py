"""Which of the packages that changed turn a question red: the smallest set of changes that does, proved by running."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builder.base import errors, process
from builder.base.project import Project, sha256
from builder.bisect import ddmin
from builder.bisect.bisection import BOUNDS, Journal, Said, Verdict
from builder.bisect.sides import Between, ConflictError, order
from builder.certify import hostenv, suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.lock.change import Change
from builder.lock.lockfile import Lock

SUSPECTS = 2  # how many advisories may be tried before the search begins
CANNOT_SAY = 125  # the exit status of a command that cannot judge this set, as for `git bisect run`
LOG = 20000  # characters of a log that are looked at
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b:? ?.*$", re.MULTILINE
)


@dataclass(frozen=True)
class Question:
    """What is asked of every set: a probe of the suite, or a command of the person's own.

    `says` narrows what counts as the failure: its log must hold that text. `judge` may see more in a probe's result
    than whether it passed.
    """

    probe: str = ""
    command: tuple[str, ...] = ()
    says: str = ""
    time_limit_s: float = 600
    judge: Callable[[ProbeResult], Said] | None = None
    about: str = ""  # what `judge` looks at, in words

    @property
    def name(self) -> str:
        return self.probe or " ".join(self.command)


@dataclass(frozen=True)
class Found:
    """The answer: `culprits` are all needed, `along` came with them because their requirements ask for it."""

    culprits: tuple[Change, ...]
    along: tuple[Change, ...]
    good: Lock
    bad: Lock  # the good end with no other changes than these
    said: Said  # of it


def key(between: Between, question: Question, identity: str) -> str:
    """The name of this very bisection: the two ends, the question, and the suite where it is one of its probes."""
    asked = [
        between.good.digest,
        between.bad.digest,
        question.name,
        question.says,
        question.about,
        identity if question.probe else "",
    ]
    return "packages-" + sha256("\0".join(asked).encode()).removeprefix("sha256:")[:12]


def known_as(name: str) -> str:
    """What advisories call a distribution."""
    return advisory.SAME.get(name, name)


def suspects(advisories: Sequence[Advisory], between: Between, probe: str) -> list[tuple[str, ...]]:
    """The changes that an advisory blames: it matches the bad end, and not the good one. Those of the probe first."""
    found: dict[tuple[str, ...], bool] = {}
    good, bad = between.good.versions, between.bad.versions
    for one in advisories:
        if one.matches(bad) == "no":
            continue
        struck = [affected for affected in one.held(bad) if affected not in one.held(good)]
        for affected in struck:
            named = tuple(name for name in between.changes if known_as(name) in affected.packages)
            if named:
                found[named] = found.get(named, False) or probe in one.probes
    return sorted(found, key=lambda named: not found[named])


class Search:
    """One bisection over packages, with its journal."""

    def __init__(
        self, project: Project, between: Between, question: Question, journal: Journal, scratch: Path,
        report: Callable[[str], None], root: Path,
    ) -> None:  # fmt: skip
        """`root` holds the copy of the suite that is run."""
        self.project, self.between, self.question, self.journal = project, between, question, journal
        self.scratch, self.report, self.root = scratch, report, root

    def run(self, advisories: Sequence[Advisory]) -> Found:
        """Find the smallest set of changes. Raises VettedError where the ends do not answer as they should."""
        blamed = suspects(advisories, self.between, self.question.probe)[:SUSPECTS]
        items = order(self.between.changes, [name for named in blamed for name in named])
        while True:
            self._ends()
            chosen = frozenset(ddmin.smallest(items, lambda part: self._red(frozenset(part)), blamed))
            chosen = self._without_what_came_along(chosen)
            if self._confirmed(chosen):
                return self._found(chosen)
            self.report("an answer changed: asking again until each is decided")

    def _ends(self) -> None:
        """The good end must be green and the bad one red; how it fails is what is looked for."""
        journal, everything = self.journal, frozenset(self.between.changes)
        verdict = self._verdict(frozenset())
        if verdict != "green":
            raise errors.VettedError(
                f"{self.question.name} is {verdict} on the good end already{self._why(self.between.good)}",
                next_step="name a good end where it passes",
            )
        journal.fault = self.question.says or None
        verdict = self._verdict(everything)
        if verdict != "red":
            raise errors.VettedError(
                f"{self.question.name} is {verdict} on the bad end{self._why(self.between.bad)}",
                cause="the fault is not in the packages, or does not show every time",
                next_step="--repeat 3, or another probe",
            )
        seen = Counter(said.fault for said in journal.rows[self.between.bad.digest].said if said.outcome == "red")
        journal.fault = self.question.says or seen.most_common(1)[0][0]

    def _why(self, lock: Lock) -> str:
        said = self.journal.rows[lock.digest].said
        return f": {said[-1].reason}" if said and said[-1].reason else ""

    def _red(self, chosen: frozenset[str]) -> bool:
        return self._verdict(chosen) == "red"

    def _verdict(self, chosen: frozenset[str]) -> Verdict:
        try:
            lock = self._at(chosen)
        except ConflictError as conflict:
            self.journal.impossible("+".join(sorted(chosen)), self._words(chosen), str(conflict))
            return "unresolvable"
        return self.journal.ask(lock.digest, self._words(self.between.applied(lock)), lambda: self._ask(lock))

    def _at(self, chosen: frozenset[str]) -> Lock:
        known = self.journal.rows.get("+".join(sorted(chosen)))
        if known is not None and known.why_not:
            raise ConflictError(known.why_not)
        self.report(f"resolving {len(chosen)} of {len(self.between.changes)} changes")
        return self.between.at(chosen, self.scratch)

    def _words(self, chosen: frozenset[str]) -> list[str]:
        return [str(self.between.changes[name]) for name in sorted(chosen)]

    def _without_what_came_along(self, chosen: frozenset[str]) -> frozenset[str]:
        """What the chosen changes brought with them may be the fault itself: take out, one by one, what can be."""
        whole = self.between.applied(self._at(chosen))
        smaller = True
        while smaller and len(whole) > 1:
            smaller = False
            for name in sorted(whole):
                part = self._fewer(whole, name)
                if part is not None and self._red(part):
                    whole, smaller = part, True
                    break
        return whole

    def _fewer(self, whole: frozenset[str], name: str) -> frozenset[str] | None:
        """The changes that are left without this one, or None where the others cannot do without it."""
        try:
            part = self.between.applied(self._at(whole - {name}))
        except ConflictError:
            return None
        return part if part and part < whole else None

    def _confirmed(self, chosen: frozenset[str]) -> bool:
        """One answer may have been luck: the two that everything rests on are asked for once more."""
        if self.journal.lead > 1:
            return True
        for lock in (self._at(chosen), self.between.good):
            if not self.journal.again(lock.digest, lambda lock=lock: self._ask(lock)):  # type: ignore[misc]
                return False
        return True

    def _found(self, chosen: frozenset[str]) -> Found:
        lock = self._at(chosen)
        needed = [name for name in sorted(chosen) if len(chosen) == 1 or self._fewer(chosen, name) is not None]
        # What only moves together is one change.
        culprits = needed or sorted(chosen)
        said = next(said for said in self.journal.rows[lock.digest].said if self.journal.kind(said) == "red")
        changes = self.between.changes
        along = [changes[name] for name in sorted(chosen) if name not in culprits]
        return Found(tuple(changes[name] for name in culprits), tuple(along), self.between.good, lock, said)

    def _ask(self, lock: Lock) -> Said:
        """Install a set, ask, and take it away again."""
        applied = self.between.applied(lock)
        what = f"{len(applied)} of {len(self.between.changes)} changes"
        own = self.scratch / "set"
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        self.report(f"installing {what}")
        named = replace(lock, name=self.between.name)
        try:
            cache = self.scratch / "uv"
            environment = hostenv.prepare(self.project, named, own, lambda _: None, keep=False, cache=cache)
        except (errors.NetworkError, errors.StorageError, errors.MissingToolError, errors.BadInputError):
            raise
        except errors.VettedError as error:
            return Said("unclear", reason=f"cannot be installed: {error.what}"[:400])
        try:
            self.report(f"run {self.journal.runs + 1}: {self.question.name[:30]}, {what}")
            if self.question.probe:
                return self._probe(lock, environment, own)
            return run_command(self.question, environment, own / "log")
        finally:
            shutil.rmtree(environment, ignore_errors=True)

    def _probe(self, lock: Lock, environment: Path, own: Path) -> Said:
        answer = suite.run(
            suite.on_host(environment, self.root, own / "run"),
            Request(lock.stack.device, lock.versions, (self.question.probe,)),
            own,
            lambda _: None,
        )
        result = next((one for one in answer.results if one.name == self.question.probe), None)
        if result is None:
            raise errors.VettedError(f"the suite said nothing of {self.question.probe}", next_step="git status smoke")
        said = (self.question.judge or of_probe)(result)
        return _narrowed(said, self.question.says)


def of_probe(result: ProbeResult) -> Said:
    """A probe's result as an answer. What tells two failures apart: the numbers out of bounds, or the exception."""
    log = (result.log_tail or "")[-LOG:]
    reason = result.reason or ""
    if result.outcome == "passed":
        return Said("green", seconds=result.seconds)
    if result.outcome == "not-run":
        return Said("unclear", reason=reason, seconds=result.seconds)
    broken = sorted(one.name for one in result.measurements if not one.ok)
    fault: str = result.outcome
    if fault == "failed":
        fault = BOUNDS + ", ".join(broken) if broken else reason.partition(":")[0]
    return Said("red", fault, reason, result.seconds, log)


def run_command(question: Question, environment: Path, log: Path, cwd: Path | None = None) -> Said:
    """Run the person's command with the environment's Python first on its PATH. 0 is green, 125 cannot say."""
    variables = {
        **hostenv.environment(environment),
        "PATH": os.pathsep.join((str(environment / "bin"), os.environ.get("PATH", os.defpath))),
        "VIRTUAL_ENV": str(environment),
    }
    start = time.monotonic()
    with (
        log.open("wb") as output,
        process.running(question.command, env=variables, cwd=cwd, stdout=output, stderr=subprocess.STDOUT) as child,
    ):
        try:
            status: int | None = child.wait(question.time_limit_s)
        except subprocess.TimeoutExpired:
            status = None
    said = of_command(status, log.read_text(errors="replace")[-LOG:], question.time_limit_s)
    return _narrowed(replace(said, seconds=round(time.monotonic() - start, 3)), question.says)


def of_command(status: int | None, log: str, limit: float) -> Said:
    """A command's end as an answer. None: it was still running at its time limit."""
    if status == 0:
        return Said("green")
    if status is None:
        return Said("red", "hang", f"still running after {limit:g} s", log=log)
    if status == CANNOT_SAY:
        return Said("unclear", reason=f"exited with status {CANNOT_SAY}", log=log)
    if status < 0:
        name = signal.Signals(-status).name
        return Said("red", name, f"killed by {name}", log=log)
    raised = list(EXCEPTION.finditer(log))
    if raised:
        return Said("red", raised[-1][1], raised[-1][0][:300], log=log)
    return Said("red", f"status {status}", f"exited with status {status}", log=log)


def _narrowed(said: Said, says: str) -> Said:
    """Only what says this is the failure that is looked for; how it failed otherwise does not matter then."""
    if not says or said.outcome != "red":
        return said
    return replace(said, fault=says if says in f"{said.reason}\n{said.log}" else f"without {says!r}")
