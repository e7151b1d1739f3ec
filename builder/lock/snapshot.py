"""Debian packages that the mirrors no longer have, from the archive that keeps them all: snapshot.debian.org.

It is asked by name and version, so a lock needs no date. It knows files by their SHA-1; here the locked SHA-256 counts.
API: https://salsa.debian.org/snapshot-team/snapshot/blob/master/API
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError

from builder.base import errors
from builder.base.download import Downloader
from builder.lock.lockfile import Entry

ARCHIVE = "https://snapshot.debian.org"


class File(BaseModel):
    """One file of a package: of which architecture, and its SHA-1, which is its name in the archive."""

    architecture: str
    hash: str


class Files(BaseModel):
    """The archive's answer about one version of a package."""

    result: list[File]


def archive() -> str:
    """The URL of the archive, without a user and a password."""
    parts = urlsplit(_url())
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _url() -> str:
    return os.environ.get("VETTED_DEBIAN_SNAPSHOT", "").rstrip("/") or ARCHIVE


def download(downloader: Downloader, entry: Entry, architecture: str, target: Path) -> Path:
    """The locked file of a package, in `target`. Raises NetworkError."""
    path = target / f"{entry.sha256}.deb"
    for sha1 in _files(downloader, entry, architecture):
        if downloader.save(f"{_url()}/file/{sha1}", path) == entry.sha256:
            return path
    raise errors.NetworkError(f"it has no {entry.name} {entry.version} for {architecture} with the locked hash")


def _files(downloader: Downloader, entry: Entry, architecture: str) -> list[str]:
    """The archive's names of the files of a package that are for an architecture, or for all."""
    where = f"{_url()}/mr/binary/{quote(entry.name)}/{quote(entry.version, safe='')}/binfiles"
    try:
        files = Files.model_validate_json(downloader.content(where)).result
    except ValidationError as error:
        raise errors.NetworkError("it gave no answer that can be read") from error
    return [
        file.hash
        for file in files
        if file.architecture in (architecture, "all") and re.fullmatch("[0-9a-f]{40}", file.hash)
    ]
