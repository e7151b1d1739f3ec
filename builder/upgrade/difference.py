"""The difference between two locks in words: versions, sizes, licences, and which advisories it touches."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email.message import Message
from email.parser import HeaderParser
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from builder.base import errors
from builder.bisect.sides import Change
from builder.intent.advisory import Advisory
from builder.lock import resolve
from builder.lock.lock import Lock
from builder.lock.resolve import File

UNKNOWN = "unknown"
SMALL = 20_000_000  # bytes: a file below that is fetched for what it says of itself


@dataclass(frozen=True)
class Row:
    """One distribution that changed. Sizes are those of the files, in bytes; None where the index does not say."""

    change: Change
    sizes: tuple[int | None, int | None]
    licences: tuple[str, str]

    def __str__(self) -> str:
        said = str(self.change)
        before, after = self.sizes
        if before is not None and after is not None and self.change.good and self.change.bad:
            said += f", {megabytes(after - before)}"
        elif after is not None or before is not None:
            said += f", {megabytes(after or -(before or 0))}"
        if self.change.good and self.change.bad and self.licences[0] != self.licences[1]:
            said += f", licence {self.licences[0]} → {self.licences[1]}"
        elif self.change.good is None:
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
    changes = [
        Change(name, old.versions.get(name), new.versions.get(name))
        for name in sorted({*old.versions, *new.versions})
        if old.versions.get(name) != new.versions.get(name)
    ]
    before = _files(old, [f"{one.name}=={one.good}" for one in changes if one.good], scratch)
    after = _files(new, [f"{one.name}=={one.bad}" for one in changes if one.bad], scratch)
    rows = []
    for one in changes:
        was, will = before.get(one.name), after.get(one.name)
        sizes = (_weight(was), _weight(will))
        rows.append(Row(one, sizes, (licence(was) if was else "", licence(will) if will else "")))
    matched = {one.id: (one.matches(old.versions), one.matches(new.versions), one.summary) for one in advisories}
    return Difference(
        tuple(rows),
        tuple(f"{key}: {said}" for key, (was_, will_, said) in matched.items() if was_ == "no" != will_),
        tuple(f"{key}: {said}" for key, (was_, will_, said) in matched.items() if will_ == "no" != was_),
        len(set(old.debian) ^ set(new.debian)) and len({e.name for e in set(old.debian) ^ set(new.debian)}),
    )


def _files(held: Lock, pins: list[str], scratch: Path) -> dict[str, File]:
    if not pins:
        return {}
    try:
        return {name: files[0] for name, files in resolve.offers(held.stack, scratch, pins)[0].items()}
    except errors.BadInputError:
        return {}  # one that was deleted meanwhile has no size any more; the audit is where that matters


def _weight(file: File | None) -> int | None:
    return resolve.size(file) if file else 0


def licence(file: File) -> str:
    """The licence that a wheel declares, in one line."""
    said = metadata(file)
    if said is None:
        return UNKNOWN
    classified = [
        line.rpartition("::")[2].strip() for line in said.get_all("Classifier", []) if line.startswith("License")
    ]
    declared = said.get("License-Expression") or (said.get("License") or "").strip().partition("\n")[0]
    return (declared if declared and len(declared) < 60 else "") or ", ".join(classified) or UNKNOWN


def metadata(file: File) -> Message | None:
    """What a distribution says of itself: an index may serve it beside the wheel, else it is in the file."""
    remote = "://" in file.url and not file.url.startswith("file:")
    try:
        if remote and file.is_wheel:
            beside = replace(file, url=file.url.partition("#")[0] + ".metadata")
            with suppress(errors.NetworkError):
                return HeaderParser().parsestr(resolve.download(beside).decode(errors="replace"))
        if remote and (_weight(file) or SMALL) >= SMALL:
            return None
        return HeaderParser().parsestr(_inside(file).decode(errors="replace"))
    except (errors.NetworkError, BadZipFile, tarfile.TarError, StopIteration, KeyError):
        return None


def _inside(file: File) -> bytes:
    content = BytesIO(resolve.download(file))
    if file.is_wheel:
        with ZipFile(content) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(fileobj=content) as archive:
        name = next(name for name in archive.getnames() if name.endswith("/PKG-INFO") and name.count("/") == 1)
        member = archive.extractfile(name)
        return member.read() if member else b""


def megabytes(size: int) -> str:
    """A difference in size."""
    return f"{size / 1e6:+.1f} MB"
