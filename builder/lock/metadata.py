"""What a distribution declares: METADATA of a wheel, PKG-INFO of a source distribution."""

from __future__ import annotations

import re
import tarfile
import tomllib
from contextlib import suppress
from dataclasses import replace
from email.message import Message
from email.parser import HeaderParser
from io import BytesIO
from zipfile import BadZipFile, ZipFile

from builder.base import errors
from builder.lock import index
from builder.lock.index import File

UNKNOWN = "unknown"


SMALL = 20_000_000  # bytes: a file below that is fetched for what it says of itself


def size(file: File | None) -> int | None:
    """Bytes of a file; 0 for none, None where the index does not say."""
    return index.size(file) if file else 0


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
                return HeaderParser().parsestr(index.download(beside).decode(errors="replace"))
        if remote and (size(file) or SMALL) >= SMALL:
            return None
        return HeaderParser().parsestr(_inside(file).decode(errors="replace"))
    except (errors.NetworkError, BadZipFile, tarfile.TarError, StopIteration, KeyError):
        return None


def _inside(file: File) -> bytes:
    content = BytesIO(index.download(file))
    if file.is_wheel:
        with ZipFile(content) as wheel:
            return wheel.read(next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")))
    with tarfile.open(fileobj=content) as archive:
        name = next(name for name in archive.getnames() if name.endswith("/PKG-INFO") and name.count("/") == 1)
        member = archive.extractfile(name)
        return member.read() if member else b""


def build_requirements(sdist: bytes) -> list[str]:
    """What a source distribution says it needs to be built (PEP 518; setuptools where it says nothing)."""
    with tarfile.open(fileobj=BytesIO(sdist)) as archive:
        for member in archive.getmembers():
            if re.fullmatch(r"[^/]+/pyproject\.toml", member.name) and (content := archive.extractfile(member)):
                requires = tomllib.loads(content.read().decode()).get("build-system", {}).get("requires")
                return [str(line) for line in requires or ["setuptools"]]
    return ["setuptools"]
