"""The difference between two locks in words: versions, sizes, licences, and which advisories it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, quantities
from builder.intent.advisory import Advisory
from builder.lock import index, metadata
from builder.lock.change import Change, changes
from builder.lock.index import File
from builder.lock.lockfile import Lock


@dataclass(frozen=True)
class ChangedDistribution:
    """A distribution that changed. Sizes are those of the files, in bytes; None where the index does not say."""

    change: Change
    sizes: tuple[int | None, int | None]
    licences: tuple[str, str]

    def __str__(self) -> str:
        words = str(self.change)
        before, after = self.sizes
        moved = bool(self.change.old and self.change.new)
        if before is not None and after is not None and moved:
            words += f", {quantities.size_change(after - before)}"
        elif after is not None or before is not None:
            words += f", {quantities.size_change(after or -(before or 0))}"
        if moved and self.licences[0] != self.licences[1]:
            words += f", licence {self.licences[0]} → {self.licences[1]}"
        elif self.change.old is None:
            words += f", licence {self.licences[1]}"
        return words


@dataclass(frozen=True)
class Difference:
    """All changes. The advisories, in words, are those that match only the new lock, and those that matched only the
    old one; `debian` is the number of Debian packages that changed."""

    rows: tuple[ChangedDistribution, ...]
    new_advisories: tuple[str, ...]
    old_advisories: tuple[str, ...]
    debian: int = 0

    @property
    def size(self) -> int:
        """The growth of all files together in bytes, as far as it is known."""
        return sum((row.sizes[1] or 0) - (row.sizes[0] or 0) for row in self.rows if None not in row.sizes)

    @property
    def total(self) -> str:
        """The growth in words, and the number of distributions of unknown size."""
        unknown = sum(None in row.sizes for row in self.rows)
        return quantities.size_change(self.size) + (f", {unknown} of unknown size" if unknown else "")

    def words(self) -> list[str]:
        """One line for each change, and one for each advisory."""
        lines = [str(row) for row in self.rows]
        if self.debian:
            lines.append(f"{self.debian} Debian packages changed")
        lines += [f"now matches {advisory}" for advisory in self.new_advisories]
        lines += [f"no longer matches {advisory}" for advisory in self.old_advisories]
        return lines


def of(old: Lock, new: Lock, advisories: Sequence[Advisory], scratch: Path) -> Difference:
    """Compare two locks. Sizes and licences come from the index."""
    moved = changes(old.versions, new.versions)
    before = _files(old, [f"{change.name}=={change.old}" for change in moved if change.old], scratch)
    after = _files(new, [f"{change.name}=={change.new}" for change in moved if change.new], scratch)
    rows = []
    for change in moved:
        files = before.get(change.name), after.get(change.name)
        sizes = [index.size(file) if file else 0 for file in files]
        licences = [metadata.licence(file) if file else "" for file in files]
        rows.append(ChangedDistribution(change, (sizes[0], sizes[1]), (licences[0], licences[1])))
    starting: list[str] = []
    ending: list[str] = []
    for advisory in advisories:
        matched, matches = advisory.matches(old.versions) != "no", advisory.matches(new.versions) != "no"
        if matched != matches:
            (starting if matches else ending).append(f"{advisory.id}: {advisory.summary}")
    debian = {entry.name for entry in set(old.debian) ^ set(new.debian)}
    return Difference(tuple(rows), tuple(starting), tuple(ending), len(debian))


def _files(lock: Lock, pins: list[str], scratch: Path) -> dict[str, File]:
    if not pins:
        return {}
    try:
        return {name: files[0] for name, files in index.offers(lock.stack, scratch, pins)[0].items()}
    except errors.BadInputError:
        return {}  # a release that was deleted meanwhile has no size any more; the audit reports it
