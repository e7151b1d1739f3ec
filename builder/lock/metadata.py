"""What a distribution declares: METADATA of a wheel, PKG-INFO and pyproject.toml of a source distribution."""

from __future__ import annotations

import lzma
import re
import tarfile
import tomllib
import zlib
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import IO, BinaryIO
from zipfile import BadZipFile, ZipFile

from packaging.metadata import RawMetadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement

from builder.base import errors, quantities
from builder.lock import index
from builder.lock.index import File

UNKNOWN = "unknown"
SMALL = 20_000_000  # bytes: a file below that is downloaded only to read its metadata
LONGEST = 120  # characters of a licence's name; some put the whole text there
LARGEST = (
    16 << 20
)  # bytes of METADATA, PKG-INFO or pyproject.toml, unpacked: a small archive may hold any number of them
# What reading a damaged archive may raise.
UNREADABLE = (
    BadZipFile, tarfile.TarError, StopIteration, KeyError, EOFError, zlib.error, lzma.LZMAError, NotImplementedError,
    RuntimeError, OSError,
)  # fmt: skip


def parse(content: bytes | str) -> RawMetadata:
    """The fields of METADATA or PKG-INFO. A field that is malformed or repeated against the format is left out."""
    return parse_email(content)[0]


def read(file: File) -> RawMetadata:
    """The metadata that an index serves beside a wheel, else that in the file.

    Raises NetworkError when it cannot be downloaded, BadInputError when the file has none.
    """
    return _served(file) or parse(_inside(file))


def declared(file: File) -> RawMetadata | None:
    """The metadata of a distribution; None where it cannot be had, or only with a large download."""
    try:
        if fields := _served(file):
            return fields
        if file.is_remote and (index.size(file) or SMALL) >= SMALL:
            return None
        return parse(_inside(file))
    except (errors.NetworkError, errors.BadInputError):
        return None


def licence(file: File) -> str:
    """The licences that a distribution declares, in one line."""
    return ", ".join(licences(declared(file) or {})) or UNKNOWN


def licences(fields: RawMetadata) -> tuple[str, ...]:
    """The licences in metadata: an SPDX expression, else a short free text, else the classifiers."""
    for text in (fields.get("license_expression", ""), fields.get("license", "")):
        if name := licence_name(text):
            return (name,)
    classifiers = [line for line in fields.get("classifiers", []) if line.startswith("License :: ")]
    names = {licence_name(line.rpartition(" :: ")[2]) for line in classifiers if line != "License :: OSI Approved"}
    return tuple(sorted(names - {""}))


def licence_name(text: str) -> str:
    """A licence's name in one printable line; empty for a whole text and for what says nothing."""
    name = text.strip()
    return name if name.isprintable() and len(name) <= LONGEST and name.upper() not in ("UNKNOWN", "NONE") else ""


def build_requirements(sdist: bytes, name: str = "a source distribution") -> list[str]:
    """What a source distribution needs to be built (PEP 518): setuptools where it declares nothing.

    Raises BadInputError for what is no requirement: uv would read such a line as an option, or fetch it from its URL.
    """
    try:
        table = tomllib.loads(_pyproject(sdist).decode()).get("build-system", {})
        lines = table.get("requires") or ["setuptools"]
        if not isinstance(lines, list):
            raise ValueError(f"`requires` is no list: {lines!r}")
        return [_requirement(line) for line in lines]
    except (*UNREADABLE, ValueError, AttributeError, RecursionError) as error:
        raise errors.BadInputError(
            f"{name} does not say what builds it: {str(error)[:200]}",
            cause="its pyproject.toml is damaged, or asks for more than packages of an index",
            next_step="leave it out, or build a wheel of it yourself and name that file",
        ) from error


def _pyproject(sdist: bytes) -> bytes:
    with tarfile.open(fileobj=BytesIO(sdist)) as archive:
        for member in archive.getmembers():
            if re.fullmatch(r"[^/]+/pyproject\.toml", member.name) and (content := archive.extractfile(member)):
                return _read(content)
    return b""


def _requirement(line: object) -> str:
    """A line of `requires`. Raises ValueError; InvalidRequirement is one."""
    if not isinstance(line, str) or not line.isprintable():
        raise InvalidRequirement(f"{line!r} is no requirement")
    if Requirement(line).url:
        raise InvalidRequirement(f"{line!r} names a URL, which a lock does not keep")
    return line


def _read(content: IO[bytes]) -> bytes:
    """Raises ValueError for more than anybody writes."""
    data = content.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"larger than {quantities.size(LARGEST)}")
    return data


def _served(file: File) -> RawMetadata | None:
    """What the index serves beside a wheel (PEP 658)."""
    if not file.is_wheel or not file.is_remote:
        return None
    with suppress(errors.NetworkError):
        fields = parse(index.download(replace(file, url=file.url.partition("#")[0] + ".metadata", size=None)))
        return fields if "name" in fields else None
    return None


def kept(path: Path) -> RawMetadata:
    """The metadata in a file of this machine; empty where none can be read."""
    try:
        with path.open("rb") as content:
            return parse(_member(path.name, content))
    except errors.BadInputError:
        return {}


def _inside(file: File) -> bytes:
    return _member(file.filename, BytesIO(index.download(file)))


def _member(filename: str, content: BinaryIO) -> bytes:
    try:
        if filename.endswith(".whl"):
            with ZipFile(content) as wheel:
                name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
                with wheel.open(name) as packed:
                    return _read(packed)
        with tarfile.open(fileobj=content) as archive:
            name = next(name for name in archive.getnames() if name.endswith("/PKG-INFO") and name.count("/") == 1)
            member = archive.extractfile(name)
            return _read(member) if member else b""
    except (*UNREADABLE, ValueError) as error:
        raise errors.BadInputError(
            f"{filename}: it has no metadata that can be read",
            cause="the download was cut short, or the file is not a distribution",
            next_step="run this again",
        ) from error
