"""What every bisection keeps: a journal of what was asked and answered, so that it can be interrupted and goes on.

The journal lies in .vetted/bisect/<key>.json, where the key names the two ends and the question. It is written after
every answer. An answer that was given once is not asked for again, unless answers turn out to change: then every one
is asked until one leads the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from builder.base import errors, reading
from builder.base.project import Project, write

# "other" failed, but in another way than what is looked for; "unclear" could not be asked; "unresolvable" cannot exist;
# "flaky" was asked often and stayed undecided.
Verdict = Literal["green", "red", "other", "unclear", "unresolvable", "flaky"]

SURE_LEAD = 3  # by how many answers one must lead once answers were seen to change
MOST_RUNS = 15  # of one set

BOUNDS = "out of bounds: "  # the fault of numbers, which follow


def same(one: str, other: str) -> bool:
    """Are two faults the same? Which numbers leave their bounds may vary a little: one of them will do."""
    if one.startswith(BOUNDS) and other.startswith(BOUNDS):
        names = (set(fault.removeprefix(BOUNDS).split(", ")) for fault in (one, other))
        return bool(set.intersection(*names))
    return one == other


@dataclass(frozen=True)
class Said:
    """What one run said. `fault` tells two failures apart: the kind of exception, say; "" where nothing failed."""

    outcome: Literal["green", "red", "unclear"]
    fault: str = ""
    reason: str = ""
    seconds: float = 0.0
    log: str = ""


@dataclass
class Row:
    """One set that was tried: what it is, and every answer; `resolved` is false for a set that cannot exist."""

    changes: list[str]
    said: list[Said] = field(default_factory=list)
    why_not: str = ""  # why it cannot exist
    earlier: int = 0  # answers that an earlier, interrupted run left


class _KeptRow(BaseModel):
    changes: list[str]
    said: list[Said]
    why_not: str


class _Kept(BaseModel):
    """A journal as its file holds it."""

    lead: int
    rows: dict[str, _KeptRow]


@dataclass
class Journal:
    """The answers so far. `fault` is the failure that is looked for; `lead` how far ahead an answer must be."""

    path: Path
    scratch: Path
    fault: str | None = None
    lead: int = 1
    rows: dict[str, Row] = field(default_factory=dict)
    runs: int = 0  # answers that were asked for in this process
    told: Callable[[Row, Said], None] = lambda _row, _said: None

    @classmethod
    def open(cls, project: Project, key: str, scratch: Path, lead: int = 1) -> Journal:
        """The journal of this very bisection, as far as it came. One that cannot be read is begun anew."""
        path = project.state / "bisect" / f"{key}.json"
        journal = cls(path, scratch, lead=lead)
        try:
            kept = _Kept.model_validate(reading.json_object(path, str(path)))
        except (OSError, errors.BadInputError, ValidationError, RecursionError):
            return journal
        journal.lead = max(lead, kept.lead)
        for name, row in kept.rows.items():
            journal.rows[name] = Row(row.changes, row.said, row.why_not, len(row.said))
        return journal

    @property
    def folder(self) -> Path:
        """Where the results go."""
        return self.path.with_suffix("")

    def ask(self, key: str, changes: Sequence[str], question: Callable[[], Said]) -> Verdict:
        """The verdict on a set: from the journal, or by asking until it is decided."""
        row = self.rows.setdefault(key, Row(list(changes)))
        while (verdict := self.verdict(row)) is None:
            self._note(row, question())
        return verdict

    def again(self, key: str, question: Callable[[], Said]) -> bool:
        """Ask once more what one answer decided. False when it changed: then one is no longer enough anywhere."""
        row = self.rows[key]
        if len(row.said) > 1:
            return True
        before = self.kind(row.said[-1])
        self._note(row, question())
        if self.kind(row.said[-1]) == before:
            return True
        self.lead = max(self.lead, SURE_LEAD)
        self.save()
        return False

    def impossible(self, key: str, changes: Sequence[str], why: str) -> None:
        """Note that a set cannot exist."""
        self.rows[key] = Row(list(changes), why_not=why)
        self.save()

    def kind(self, said: Said) -> Verdict:
        """One answer, seen beside the failure that is looked for."""
        if said.outcome != "red":
            return said.outcome
        return "red" if self.fault is None or same(self.fault, said.fault) else "other"

    def verdict(self, row: Row) -> Verdict | None:
        """What the answers amount to, or None while they do not suffice."""
        if row.why_not:
            return "unresolvable"
        counts = Counter(self.kind(said) for said in row.said).most_common()
        if not counts:
            return None
        behind = counts[1][1] if len(counts) > 1 else 0
        if counts[0][1] - behind >= self.lead:
            return counts[0][0]
        return "flaky" if len(row.said) >= MOST_RUNS else None

    def _note(self, row: Row, said: Said) -> None:
        row.said.append(said)
        self.runs += 1
        self.save()
        self.told(row, said)

    def save(self) -> None:
        rows = {
            key: {"changes": row.changes, "said": [asdict(said) for said in row.said], "why_not": row.why_not}
            for key, row in self.rows.items()
        }
        write(self.path, json.dumps({"lead": self.lead, "rows": rows}, indent=1) + "\n", self.scratch)

    def tried(self) -> list[dict[str, Any]]:
        """What was tried, as JSON: one row for each set, in the order of the asking."""
        return [
            {
                "changes": row.changes,
                "verdict": self.verdict(row) or "unclear",
                "reason": row.why_not or next((said.reason for said in reversed(row.said) if said.reason), ""),
                "runs": len(row.said),
                "earlier": row.earlier,
                "seconds": round(sum(said.seconds for said in row.said), 1),
            }
            for row in self.rows.values()
        ]
