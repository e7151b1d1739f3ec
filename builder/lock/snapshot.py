"""Debian packages that the mirrors no longer have, from the archive that keeps them all: snapshot.debian.org.

It is asked by name and version, so a lock needs no date. Whoever asks checks the SHA-256: the archive knows SHA-1 only.
API: https://salsa.debian.org/snapshot-team/snapshot/blob/master/API
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from builder.base import errors
from builder.base.download import Downloader
from builder.lock.lockfile import Entry

ARCHIVE = "https://snapshot.debian.org"
ARCHITECTURES = ("all",)  # beside the platform's own


class File(BaseModel):
    """One file of a package: of which architecture, and its SHA-1, which is its name in the archive."""

    architecture: str
    hash: str


class Files(BaseModel):
    """The archive's answer about one version of a package."""

    result: list[File]


def url() -> str:
    return os.environ.get("VETTED_DEBIAN_SNAPSHOT", "").rstrip("/") or ARCHIVE


def download(entries: Sequence[Entry], architecture: str, target: Path) -> dict[Entry, Path]:
    """Each package as a file in `target`, not yet verified. Raises NetworkError."""
    files: dict[Entry, Path] = {}
    with Downloader() as downloader:
        for entry in entries:
            files[entry] = target / f"{entry.sha256}.deb"
            downloader.save(f"{url()}/file/{_sha1(downloader, entry, architecture)}", files[entry])
    return files


def _sha1(downloader: Downloader, entry: Entry, architecture: str) -> str:
    """The archive's name of a package's file."""
    where = f"{url()}/mr/binary/{quote(entry.name)}/{quote(entry.version, safe='')}/binfiles"
    try:
        files = Files.model_validate_json(downloader.content(where)).result
    except ValidationError as error:
        raise errors.NetworkError(f"{url()} gave no answer that can be read about {entry.name}") from error
    for file in files:
        if file.architecture in (architecture, *ARCHITECTURES) and re.fullmatch("[0-9a-f]{40}", file.hash):
            return file.hash
    raise errors.NetworkError(f"{url()} has no {entry.name} {entry.version} for {architecture}")
