"""Which records there are, which are compared with which, and where the pictures lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

from packaging.version import InvalidVersion, Version

from builder.base import errors
from builder.base.project import Project, write
from builder.base.text import word
from builder.intent import stack
from builder.lock import lockfile
from builder.trajectory import picture, record, verdict
from builder.trajectory.record import Place, Record
from builder.trajectory.verdict import Verdict


def band(project: Project, named: str, place: Place | None = None) -> Record:
    """The record of a stack or in a file, of this place if there are several. Raises BadInputError without one."""
    file = Path(named)
    if file.suffix == ".json" or file.is_file():
        try:
            return record.read(file, named)
        except OSError as error:
            raise errors.from_os(error) from error
    stack.load(project, named)
    records = record.of_stack(project, named)
    if not records:
        raise errors.BadInputError(
            f"{named} has no golden trajectories",
            cause="nobody has recorded them yet",
            next_step=f"vetted trajectories {word(named)}",
        )
    return min(records, key=lambda each: _distance(each.place, place))


def _distance(left: Place, right: Place | None) -> int:
    """In how many ways two places differ."""
    if right is None:
        return 0
    return sum(getattr(left, key) != getattr(right, key) for key in ("device", "engine", "hardware", "threads"))


def all_records(project: Project) -> list[Record]:
    """The records of all stacks, older releases of TRL first."""
    records = [each for name in stack.names(project) for each in record.of_stack(project, name)]
    return sorted(records, key=lambda each: (_release(project, each.stack), each.stack))


def _release(project: Project, name: str) -> Version:
    try:
        return Version(lockfile.load(project, name).versions["trl"])
    except (errors.VettedError, KeyError, InvalidVersion):
        return Version("0")


def pairs(records: Iterable[Record]) -> Iterator[Verdict | str]:
    """The verdict on every pair, the earlier one first; or the reason why two cannot be compared."""
    for before, after in combinations(records, 2):
        try:
            yield verdict.judge(before, after)
        except errors.BadInputError as error:
            yield f"{' → '.join(verdict.labels(before, after))}: not compared: {error.what}"


def upgrades(project: Project, name: str) -> list[Verdict | str]:
    """The verdicts on the stacks with the same or a newer TRL, against each record of this one on the same device."""
    own = record.of_stack(project, name)
    if not own:
        return []
    release = _release(project, name)
    later = [r for r in all_records(project) if r.stack != name and _release(project, r.stack) >= release]
    return [
        each
        for before in own
        for after in later
        if after.place.device == before.place.device
        for each in pairs([before, after])
    ]


def drawn(project: Project, judged: Verdict, scratch: Path, target: Path | None = None) -> Path | None:
    """Draw a verdict, to `target` or below .vetted/. Returns the file; None where there is nothing to see."""
    if not judged.before.seeds or not judged.after.seeds:
        return None
    ends = (f"{each.stack}-{record.name(each.place)}-{each.lock[7:13]}" for each in (judged.before, judged.after))
    file = target or project.state / "trajectories" / f"{'-to-'.join(ends)}.svg"
    write(file, picture.svg(judged), scratch)
    return file
