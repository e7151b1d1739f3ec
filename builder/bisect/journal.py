"""The journal of a bisection: every trial and its outcome, so that an interrupted bisection goes on where it was.

It is kept in .vetted/bisect/<key>.json, where the key names the two ends and the question, and written after every
trial, with a seal: what nobody here has tried blames nothing. One trial decides on a set. Once outcomes turn out to
change, a set is tried until one verdict leads the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from pydantic import BaseModel, ValidationError

from builder.base import errors, reading, sealed
from builder.base.project import Project

# "other": it failed in another way than the failure that is looked for; "unclear": it could not be tried;
# "unresolvable": the set cannot exist; "flaky": many trials did not decide.
Verdict = Literal["green", "red", "other", "unclear", "unresolvable", "flaky"]

CLEAR_LEAD = 3  # trials by which one verdict must lead once outcomes were seen to change
MOST_TRIALS = 15  # of one set

BOUNDS = "out of bounds: "  # the fault of numbers; their names follow


def same_fault(fault: str, other: str) -> bool:
    """Are two faults the same? Which numbers leave their bounds may vary a little: one in common is enough."""
    if fault.startswith(BOUNDS) and other.startswith(BOUNDS):
        return not set(_numbers(fault)).isdisjoint(_numbers(other))
    return fault == other


def _numbers(fault: str) -> list[str]:
    return fault.removeprefix(BOUNDS).split(", ")


@dataclass(frozen=True)
class Trial:
    """One run of one set. `fault` tells two failures apart, by the kind of exception, say; empty without a failure."""

    outcome: Literal["green", "red", "unclear"]
    fault: str = ""
    reason: str = ""
    seconds: float = 0.0
    log: str = ""


@dataclass
class TriedSet:
    """A set of changes, in words, with its trials, or with the conflict because of which it cannot exist."""

    changes: list[str]
    trials: list[Trial] = field(default_factory=list)
    conflict: str = ""
    earlier: int = 0  # trials that an interrupted run left


class TriedRow(TypedDict):
    """A tried set as JSON, for people and programs."""

    changes: list[str]
    verdict: Verdict
    reason: str
    runs: int
    earlier: int
    seconds: float


class _StoredSet(BaseModel):
    changes: list[str]
    trials: list[Trial]
    why_not: str


class _Stored(BaseModel):
    """The file of a journal."""

    lead: int
    rows: dict[str, _StoredSet]


@dataclass
class Journal:
    """The trials so far. `fault` is the failure that is looked for; `lead` the trials by which a verdict must lead."""

    path: Path
    scratch: Path
    fault: str | None = None
    lead: int = 1
    sets: dict[str, TriedSet] = field(default_factory=dict)
    runs: int = 0  # trials in this process
    on_trial: Callable[[TriedSet, Trial], None] = lambda _set, _trial: None

    @classmethod
    def open(cls, project: Project, key: str, scratch: Path, lead: int = 1, *, fresh: bool = False) -> Journal:
        """The journal of this bisection. One that is `fresh`, that cannot be read, or that has no seal of this user,
        starts empty."""
        path = project.state / "bisect" / f"{key}.json"
        journal = cls(path, scratch, lead=lead)
        if journal.folder.is_symlink():  # results of earlier drafts are removed there
            journal.folder.unlink()
        if fresh:
            path.unlink(missing_ok=True)
            return journal
        try:
            content = reading.content(path, str(path))
            stored = _Stored.model_validate_json(content)
        except (OSError, errors.BadInputError, ValidationError, RecursionError):
            return journal
        if not sealed.intact(path, journal._sealed, content):
            return journal
        journal.lead = max(lead, stored.lead)
        for name, row in stored.rows.items():
            journal.sets[name] = TriedSet(row.changes, row.trials, row.why_not, len(row.trials))
        return journal

    @property
    def folder(self) -> Path:
        """The folder of the results."""
        return self.path.with_suffix("")

    @property
    def _sealed(self) -> str:
        return f"trials of {self.path.stem}"

    def decide(self, key: str, changes: Sequence[str], run: Callable[[], Trial]) -> Verdict:
        """The verdict on a set: from the journal, or by as many trials as it takes."""
        tried = self.sets.setdefault(key, TriedSet(list(changes)))
        while (verdict := self.verdict(tried)) is None:
            self._add(tried, run())
        return verdict

    def confirm(self, key: str, run: Callable[[], Trial]) -> bool:
        """Repeat a trial that decided alone. False when its outcome changed: then one trial decides nothing more."""
        tried = self.sets[key]
        if len(tried.trials) > 1:
            return True
        before = self.outcome(tried.trials[-1])
        self._add(tried, run())
        if self.outcome(tried.trials[-1]) == before:
            return True
        self.lead = max(self.lead, CLEAR_LEAD)
        self.save()
        return False

    def exclude(self, key: str, changes: Sequence[str], conflict: str) -> None:
        """Note that a set cannot exist."""
        self.sets[key] = TriedSet(list(changes), conflict=conflict)
        self.save()

    def outcome(self, trial: Trial) -> Verdict:
        """The outcome of one trial, in view of the failure that is looked for."""
        if trial.outcome != "red":
            return trial.outcome
        return "red" if self.fault is None or same_fault(self.fault, trial.fault) else "other"

    def red_trial(self, key: str) -> Trial:
        """The first trial of a red set that showed the failure."""
        return next(trial for trial in self.sets[key].trials if self.outcome(trial) == "red")

    def verdict(self, tried: TriedSet) -> Verdict | None:
        """The verdict of the trials so far; None while they do not decide."""
        if tried.conflict:
            return "unresolvable"
        counts = Counter(self.outcome(trial) for trial in tried.trials).most_common()
        if not counts:
            return None
        second = counts[1][1] if len(counts) > 1 else 0
        if counts[0][1] - second >= self.lead:
            return counts[0][0]
        return "flaky" if len(tried.trials) >= MOST_TRIALS else None

    def _add(self, tried: TriedSet, trial: Trial) -> None:
        tried.trials.append(trial)
        self.runs += 1
        self.save()
        self.on_trial(tried, trial)

    def save(self) -> None:
        """Write the journal."""
        rows = {
            key: {
                "changes": tried.changes,
                "trials": [asdict(trial) for trial in tried.trials],
                "why_not": tried.conflict,
            }
            for key, tried in self.sets.items()
        }
        content = json.dumps({"lead": self.lead, "rows": rows}, indent=1) + "\n"
        sealed.replace(self.path, self._sealed, content.encode(), self.scratch)

    def tried(self) -> list[TriedRow]:
        """All sets as JSON, in the order in which they were tried."""
        return [
            {
                "changes": tried.changes,
                "verdict": self.verdict(tried) or "unclear",
                "reason": tried.conflict
                or next((trial.reason for trial in reversed(tried.trials) if trial.reason), ""),
                "runs": len(tried.trials),
                "earlier": tried.earlier,
                "seconds": round(sum(trial.seconds for trial in tried.trials), 1),
            }
            for tried in self.sets.values()
        ]
