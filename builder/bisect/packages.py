"""Which changed packages break a probe or a command: the smallest set of changes that does, proved by running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from builder.base import aliases, errors
from builder.base.project import Project, remove
from builder.bisect import ddmin
from builder.bisect.between import Between, ConflictError, order
from builder.bisect.journal import Journal, Trial, Verdict
from builder.bisect.question import Question
from builder.certify import hostenv, suite
from builder.certify.cache import Cache
from builder.certify.suite import Request
from builder.intent.advisory import Advisory
from builder.lock.change import Change
from builder.lock.lockfile import Lock

SUSPECTS = 2  # how many advisories may be tried before the search begins


@dataclass(frozen=True)
class BreakingChanges:
    """The result. All `culprits` are needed; `dependencies` moved with them, because the culprits require it."""

    culprits: tuple[Change, ...]
    dependencies: tuple[Change, ...]
    good: Lock
    bad: Lock  # the good end with these changes alone
    trial: Trial  # of `bad`


def suspects(advisories: Sequence[Advisory], between: Between, probe: str) -> list[tuple[str, ...]]:
    """The changes that an advisory blames: it matches the bad end and not the good one. Those of the probe first."""
    blamed: dict[tuple[str, ...], bool] = {}
    good, bad = between.good.versions, between.bad.versions
    for entry in advisories:
        if entry.matches(bad) == "no":
            continue
        for affected in entry.combinations(bad):
            names = tuple(name for name in between.changes if aliases.main_name(name) in affected.packages)
            if names and affected not in entry.combinations(good):
                blamed[names] = blamed.get(names, False) or probe in entry.probes
    return sorted(blamed, key=lambda names: not blamed[names])


class Search:
    """One bisection over packages, with its journal."""

    def __init__(
        self, project: Project, between: Between, question: Question, journal: Journal, scratch: Path,
        report: Callable[[str], None], root: Path,
    ) -> None:  # fmt: skip
        """`root` is the folder of the copied suite."""
        self.project, self.between, self.question, self.journal = project, between, question, journal
        self.scratch, self.report, self.root = scratch, report, root
        self.cache = Cache(scratch / "cache")

    def run(self, advisories: Sequence[Advisory]) -> BreakingChanges:
        """Find the smallest set of changes. Raises VettedError for a good end that is red, or a bad one that is not."""
        blamed = suspects(advisories, self.between, self.question.probe)[:SUSPECTS]
        items = order(self.between.changes, [name for names in blamed for name in names])
        while True:
            self._check_ends()
            chosen = frozenset(ddmin.smallest(items, lambda part: self._is_red(frozenset(part)), blamed))
            chosen = self._without_dependencies(chosen)
            if self._is_confirmed(chosen):
                return self._result(chosen)
            self.report("an outcome changed: trying again until each set is decided")

    def _check_ends(self) -> None:
        """The good end must be green and the bad one red. How it fails is the failure that is looked for."""
        journal, between = self.journal, self.between
        verdict = self._verdict(frozenset())
        if verdict != "green":
            raise errors.VettedError(
                f"{self.question.name} is {verdict} on the good end already{self._last_reason(between.good)}",
                next_step="name a good end where it passes",
            )
        journal.fault = self.question.says or None
        verdict = self._verdict(frozenset(between.changes))
        if verdict != "red":
            raise errors.VettedError(
                f"{self.question.name} is {verdict} on the bad end{self._last_reason(between.bad)}",
                cause="the fault is not in the packages, or does not show every time",
                next_step="--repeat 3, or another probe",
            )
        trials = journal.sets[between.bad.digest].trials
        faults = Counter(trial.fault for trial in trials if trial.outcome == "red")
        journal.fault = self.question.says or faults.most_common(1)[0][0]

    def _last_reason(self, lock: Lock) -> str:
        trials = self.journal.sets[lock.digest].trials
        return f": {trials[-1].reason}" if trials and trials[-1].reason else ""

    def _is_red(self, chosen: frozenset[str]) -> bool:
        return self._verdict(chosen) == "red"

    def _verdict(self, chosen: frozenset[str]) -> Verdict:
        try:
            lock = self._lock(chosen)
        except ConflictError as conflict:
            self.journal.exclude("+".join(sorted(chosen)), self._words(chosen), str(conflict))
            return "unresolvable"
        return self.journal.decide(lock.digest, self._words(self.between.applied(lock)), lambda: self._try(lock))

    def _lock(self, chosen: frozenset[str]) -> Lock:
        """The lock with these changes. Raises ConflictError."""
        tried = self.journal.sets.get("+".join(sorted(chosen)))
        if tried is not None and tried.conflict:
            raise ConflictError(tried.conflict)
        self.report(f"resolving {len(chosen)} of {len(self.between.changes)} changes")
        return self.between.lock(chosen, self.scratch)

    def _words(self, chosen: frozenset[str]) -> list[str]:
        return [str(self.between.changes[name]) for name in sorted(chosen)]

    def _without_dependencies(self, chosen: frozenset[str]) -> frozenset[str]:
        """A dependency that moved along may be the fault itself: leave out, one by one, every change that can be."""
        whole = self.between.applied(self._lock(chosen))
        smaller = True
        while smaller and len(whole) > 1:
            smaller = False
            for name in sorted(whole):
                part = self._without(whole, name)
                if part is not None and self._is_red(part):
                    whole, smaller = part, True
                    break
        return whole

    def _without(self, whole: frozenset[str], name: str) -> frozenset[str] | None:
        """The changes that are left without this one; None where the others require it."""
        try:
            part = self.between.applied(self._lock(whole - {name}))
        except ConflictError:
            return None
        return part if part and part < whole else None

    def _is_confirmed(self, chosen: frozenset[str]) -> bool:
        """One outcome may be chance: the two trials that the result rests on are repeated."""
        if self.journal.lead > 1:
            return True
        for lock in (self._lock(chosen), self.between.good):
            if not self.journal.confirm(lock.digest, lambda lock=lock: self._try(lock)):  # type: ignore[misc]
                return False
        return True

    def _result(self, chosen: frozenset[str]) -> BreakingChanges:
        lock = self._lock(chosen)
        needed = [name for name in sorted(chosen) if len(chosen) == 1 or self._without(chosen, name) is not None]
        # Changes that move only together are one change.
        culprits = needed or sorted(chosen)
        changes = self.between.changes
        return BreakingChanges(
            tuple(changes[name] for name in culprits),
            tuple(changes[name] for name in sorted(chosen) if name not in culprits),
            self.between.good,
            lock,
            self.journal.red_trial(lock.digest),
        )

    def _try(self, lock: Lock) -> Trial:
        """Install a set, ask the question, and remove it."""
        size = f"{len(self.between.applied(lock))} of {len(self.between.changes)} changes"
        folder = self.scratch / "set"
        remove(folder)
        folder.mkdir()
        self.report(f"installing {size}")
        installed = hostenv.temporary(
            self.project, replace(lock, name=self.between.name), folder, lambda _: None, self.cache
        )
        with ExitStack() as stack:
            try:
                environment = stack.enter_context(installed)
            except (errors.NetworkError, errors.StorageError, errors.MissingToolError, errors.BadInputError):
                raise
            except errors.VettedError as error:
                return Trial("unclear", reason=f"cannot be installed: {error.what}"[:400])
            self.report(f"run {self.journal.runs + 1}: {self.question.name[:30]}, {size}")
            if self.question.probe:
                return self._run_probe(lock, environment, folder)
            return self.question.run_command(environment, folder / "log")

    def _run_probe(self, lock: Lock, environment: Path, folder: Path) -> Trial:
        probe = self.question.probe
        runner = suite.on_host(environment, self.root, folder / "run")
        answer = suite.run(runner, Request(lock.stack.device, lock.versions, (probe,)), folder, lambda _: None)
        result = next((result for result in answer.results if result.name == probe), None)
        if result is None:
            raise errors.VettedError(f"the suite did not report {probe}", next_step="git status smoke")
        return self.question.trial_of_probe(result)
