"""The difference between two locks in words: versions, sizes, licences, and which advisories it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors
from builder.intent.advisory import Advisory
from builder.lock import index, metadata
from builder.lock.change import Change, changes
from builder.lock.index import File
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class Row:
    """One distribution that changed. Sizes are those of the files, in bytes; None where the index does not say."""

    change: Change
    sizes: tuple[int | None, int | None]
    licences: tuple[str, str]

    def __str__(self) -> str:
        said = str(self.change)
        before, after = self.sizes
        if before is not None and after is not None and self.change.old and self.change.new:
            said += f", {megabytes(after - before)}"
        elif after is not None or before is not None:
            said += f", {megabytes(after or -(before or 0))}"
        if self.change.old and self.change.new and self.licences[0] != self.licences[1]:
            said += f", licence {self.licences[0]} → {self.licences[1]}"
        elif self.change.old is None:
            said += f", licence {self.licences[1]}"
        return said


@dataclass(frozen=True)
class Difference:
    """All that changed. `comes` are advisories that match the new lock only, `goes` those that matched the old one."""

    rows: tuple[Row, ...]
    comes: tuple[str, ...]
    goes: tuple[str, ...]
    debian: int = 0  # Debian packages that changed

    @property
    def size(self) -> int:
        """By how many bytes all files together grow, as far as it is known."""
        return sum((row.sizes[1] or 0) - (row.sizes[0] or 0) for row in self.rows if None not in row.sizes)

    @property
    def total(self) -> str:
        """The growth in words, and for how many it is not known."""
        unknown = sum(None in row.sizes for row in self.rows)
        return megabytes(self.size) + (f", {unknown} of unknown size" if unknown else "")

    def words(self) -> list[str]:
        """One line for each change, and one for each advisory."""
        lines = [str(row) for row in self.rows]
        if self.debian:
            lines.append(f"{self.debian} Debian packages changed")
        lines += [f"now matches {said}" for said in self.comes]
        lines += [f"no longer matches {said}" for said in self.goes]
        return lines


def of(old: Lock, new: Lock, advisories: Sequence[Advisory], scratch: Path) -> Difference:
    """Compare two locks; asks the index for what the files weigh and under which licence they come."""
    moved = changes(old.versions, new.versions)
    before = _files(old, [f"{one.name}=={one.old}" for one in moved if one.old], scratch)
    after = _files(new, [f"{one.name}=={one.new}" for one in moved if one.new], scratch)
    rows = []
    for one in moved:
        was, will = before.get(one.name), after.get(one.name)
        sizes = (index.size(was) if was else 0, index.size(will) if will else 0)
        rows.append(Row(one, sizes, (metadata.licence(was) if was else "", metadata.licence(will) if will else "")))
    matched = {one.id: (one.matches(old.versions), one.matches(new.versions), one.summary) for one in advisories}
    return Difference(
        tuple(rows),
        tuple(f"{key}: {said}" for key, (was_, will_, said) in matched.items() if was_ == "no" != will_),
        tuple(f"{key}: {said}" for key, (was_, will_, said) in matched.items() if will_ == "no" != was_),
        len(set(old.debian) ^ set(new.debian)) and len({e.name for e in set(old.debian) ^ set(new.debian)}),
    )


def _files(lock: Lock, pins: list[str], scratch: Path) -> dict[str, File]:
    if not pins:
        return {}
    try:
        return {name: files[0] for name, files in index.offers(lock.stack, scratch, pins)[0].items()}
    except errors.BadInputError:
        return {}  # one that was deleted meanwhile has no size any more; the audit is where that matters


def megabytes(size: int) -> str:
    """A difference in size."""
    return f"{size / 1e6:+.1f} MB"
