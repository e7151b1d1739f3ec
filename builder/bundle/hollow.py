"""Hollow wheels: locked wheels without the files that a host has, and how they are filled there.

In a hollow wheel these files are empty. Its RECORD still names the sha256 and the size of each, so nothing but the same
file takes the place: a filled wheel has exactly the files of the locked one.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from builder.base import errors
from builder.base.project import sha256

CHUNK = 1 << 20
LEAST_SAVED = 0.1  # of a wheel's bytes: below that it travels whole, and is not packed again
UNREADABLE = (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError, ValueError, NotImplementedError)


@dataclass(frozen=True)
class Row:
    """What RECORD says of a file."""

    sha256: str
    size: int


def make(wheel: Path, present: Mapping[str, int], target: Path) -> str | None:
    """Write a wheel without the files that are present (sha256 to bytes); returns the digest of its RECORD.

    None, and nothing is written, when too little would be saved, or its RECORD does not name exactly its files.
    """
    with zipfile.ZipFile(wheel) as archive:
        name, content = _record(archive, wheel)
        rows = _rows(content)
        files = {info.filename for info in archive.infolist() if not info.is_dir()}
        absent = {file for file, row in rows.items() if file in files and present.get(row.sha256) == row.size}
        saved = sum(archive.getinfo(file).compress_size for file in absent)
        if saved < LEAST_SAVED * wheel.stat().st_size or rows.keys() != files - {name}:
            return None
        if any(_copy(archive, file, None) != row for file, row in rows.items()):
            return None
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as hollow:
            for info in archive.infolist():
                if info.filename in absent:
                    hollow.writestr(_like(info), b"")
                elif not info.is_dir():
                    with hollow.open(_like(info), "w", force_zip64=True) as file:
                        _copy(archive, info.filename, file)
    return sha256(content).removeprefix("sha256:")


def absent_files(hollow: Path, record: str) -> dict[str, int]:
    """The files that a hollow wheel lacks, sha256 to bytes. `record`: its RECORD's digest. Raises BadInputError."""
    try:
        with zipfile.ZipFile(hollow) as archive:
            rows = _trusted(archive, hollow, record)
            return {
                row.sha256: row.size
                for file, row in rows.items()
                if row and row.size and archive.getinfo(file).file_size == 0
            }
    except (*UNREADABLE, KeyError) as error:
        raise _changed(hollow, str(error)) from error


def fill(hollow: Path, record: str, present: Mapping[str, Path], target: Path) -> None:
    """Write the wheel with all its files; what it lacks comes from `present`. Raises BadInputError.

    Every file is compared with RECORD while it is written.
    """
    try:
        with zipfile.ZipFile(hollow) as archive, zipfile.ZipFile(target, "w") as filled:
            rows = _trusted(archive, hollow, record)
            for info in archive.infolist():
                row = rows.get(info.filename)
                with filled.open(_like(info, zipfile.ZIP_STORED), "w", force_zip64=True) as file:
                    if row and row.size and info.file_size == 0:
                        with present[row.sha256].open("rb") as source:
                            got = _write(source, file)
                        where = f"the host's {present[row.sha256]}"
                    else:
                        got, where = _copy(archive, info.filename, file), "the bundle's file"
                if row and got != row:
                    raise _changed(hollow, f"{where} is not {info.filename}: sha256 {got.sha256}, not {row.sha256}")
    except (*UNREADABLE, KeyError) as error:
        raise _changed(hollow, str(error)) from error


def _changed(hollow: Path, what: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"{hollow.name}: {what}",
        cause="a file of the host or of the unpacked bundle was changed",
        next_step="unpack the bundle again, into another --to; if a file of the host has changed, make it again",
    )


def _trusted(archive: zipfile.ZipFile, hollow: Path, record: str) -> dict[str, Row | None]:
    """The files of a wheel as its RECORD, which has this digest, names them. RECORD itself has no row."""
    name, content = _record(archive, hollow)
    if sha256(content) != f"sha256:{record}":
        raise _changed(hollow, f"{name} is not the locked one\nexpected sha256:{record}\ngot      {sha256(content)}")
    rows: dict[str, Row | None] = {**_rows(content), name: None}
    names = [info.filename for info in archive.infolist()]
    if sorted(names) != sorted(rows):
        strange = sorted(set(names).symmetric_difference(rows)) or names
        raise _changed(hollow, f"its files are not those of its RECORD: {', '.join(strange[:4])}")
    return rows


def _record(archive: zipfile.ZipFile, wheel: Path) -> tuple[str, bytes]:
    names = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
    if len(names) != 1:
        raise _changed(wheel, f"it has {len(names)} RECORD files")
    return names[0], archive.read(names[0])


def _rows(content: bytes) -> dict[str, Row]:
    """The rows that have a sha256 and a size."""
    rows = {}
    for row in csv.reader(io.StringIO(content.decode(), newline="")):
        algorithm, _, code = row[1].partition("=") if len(row) == 3 else ("", "", "")
        try:
            digest = base64.b64decode(code + "=" * (-len(code) % 4), altchars="-_", validate=True)
        except (binascii.Error, ValueError):
            continue
        if algorithm == "sha256" and len(digest) == 32 and row[2].isdecimal():
            rows[row[0]] = Row(digest.hex(), int(row[2]))
    return rows


def _like(info: zipfile.ZipInfo, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    """A new entry with the name, the time and the mode of another."""
    entry = zipfile.ZipInfo(info.filename, info.date_time)
    entry.external_attr, entry.create_system = info.external_attr, info.create_system
    entry.compress_type = compression
    return entry


def _copy(archive: zipfile.ZipFile, name: str, target: IO[bytes] | None) -> Row:
    with archive.open(name) as source:
        return _write(source, target)


def _write(source: IO[bytes], target: IO[bytes] | None) -> Row:
    """Copy a stream; returns what RECORD says of such a file."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
        if target is not None:
            target.write(chunk)
    return Row(digest.hexdigest(), size)
