"""What units bring back: judged here, written once, and put in place where a stack has one certificate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builder.base.project import Project, write
from builder.certify import certificate, judgement
from builder.fleet.unit import Outcome, Unit
from builder.lock import lockfile


@dataclass(frozen=True)
class Collected:
    """A unit that ended. `file`: its statement; `doubts`: why it certifies nothing, empty for a certificate. `placed`:
    it is the certificate of the stack now."""

    outcome: Outcome
    file: Path | None
    doubts: tuple[str, ...]
    placed: bool = False

    @property
    def good(self) -> bool:
        return self.file is not None and not self.doubts


def path(output: Path, unit: Unit) -> Path:
    """The file of a unit's statement."""
    return output / f"{unit.name}-{unit.engine}.json"


def collect(home: Project, outcome: Outcome, output: Path, scratch: Path, *, place: bool) -> Collected:
    """Judge and write the statement of a unit. `place`: a good one becomes the stack's certificate as well."""
    if not outcome.statement:
        return Collected(outcome, None, (outcome.error or "it ended without a statement",))
    unit = outcome.unit
    try:
        statement = certificate.parse(outcome.statement)
    except (ValueError, RecursionError) as error:
        return Collected(outcome, None, (f"its statement cannot be read: {str(error).splitlines()[0]}",))
    lock = lockfile.load(home, unit.stack)
    doubts = judgement.doubts(statement, judgement.terms(home, lock))
    file = path(output, unit)
    write(file, outcome.statement, scratch)
    if place and not doubts:
        write(certificate.path(home, unit.stack, lock.stack.device, unit.engine), outcome.statement, scratch)
    return Collected(outcome, file, tuple(doubts), placed=place and not doubts)
