"""The signed list of a carried folder's files: `load`, compose.yaml and the suite are run, so a signature covers them.

The statement's subject is the list itself. What `load` writes is known in advance, except the host's numbers, and
results are in `runs/`, and downloads in two folders of `.huggingface/`; any other file that is not on the list is a
doubt.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from builder.base import errors
from builder.base.project import sha256, sha256_file
from builder.certify import certificate
from builder.certify.certificate import Digest
from builder.publish import hub, signing

MANIFEST = "folder.dsse.json"
TYPE = "urn:vetted:folder:v1"
ENVIRONMENT, RUNS, CACHE = ".env", "runs", ".huggingface"  # made on the host
FREE = (RUNS, *(f"{CACHE}/{name}" for name in hub.FOLDERS))  # folders of the host, which may hold anything
ABSENT = (
    "is not there: the folder's files are not signed, and nobody knows what its scripts run\n"
    "usual cause: it was left out when the folder was copied, or somebody took it away to change a file\n"
    "next: copy the whole folder again from where `vetted bundle --image` wrote it; until then, do not use it"
)
LARGEST = 1 << 26  # bytes of a list that is read


class _Listing(BaseModel):
    """The files of a folder with their digests."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    files: dict[str, Digest]
    environment: dict[str, str]  # of .env: a pattern for each value


def sign(folder: Path, environment: Mapping[str, str], key: str, scratch: Path) -> None:
    """Sign the files of a folder as they are. `environment`: the variables of the .env to come, each with a pattern."""
    files = {name: sha256_file(folder / name).removeprefix("sha256:") for name in sorted(_files(folder))}
    listing = _Listing(files=files, environment=dict(environment))
    statement = {
        "_type": certificate.STATEMENT,
        "subject": [{"name": "folder", "digest": {"sha256": sha256(_canonical(listing)).removeprefix("sha256:")}}],
        "predicateType": TYPE,
        "predicate": listing.model_dump(),
    }
    (folder / MANIFEST).write_bytes(signing.sign(json.dumps(statement).encode(), key, scratch).raw)


def check(folder: Path, key: Path, scratch: Path) -> list[str]:
    """The differences between a folder and its signed list, in words; empty when there are none."""
    path = folder / MANIFEST
    if path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
        return [f"{MANIFEST} {ABSENT}"]
    envelope = signing.parse(path.read_bytes())
    try:
        if envelope is None or envelope.predicate_type != TYPE:
            raise ValueError
        listing = _Listing.model_validate(envelope.statement.get("predicate"))
    except (ValidationError, ValueError):
        return [f"{MANIFEST} is not a signed list of files"]
    if reason := signing.doubt(envelope, _canonical(listing), key, scratch):
        return [f"{MANIFEST}: {reason}"]
    return list(_differences(folder, listing))


def unsigned(folder: Path) -> int:
    """How many files are where the host adds its own: results and downloads."""
    free = [folder / name for name in FREE]
    return sum(len(files) for path in free if not path.is_symlink() for _, _, files in os.walk(path))


def _canonical(listing: _Listing) -> bytes:
    return json.dumps(listing.model_dump(), sort_keys=True, separators=(",", ":")).encode()


def _differences(folder: Path, listing: _Listing) -> Iterator[str]:
    there = dict.fromkeys(_files(folder))
    for name in sorted(there.keys() | listing.files.keys()):
        path, shown = folder / name, ascii(name)[1:-1]
        if name == MANIFEST:
            continue
        if name not in there:
            yield f"{shown} is missing"
        elif path.is_symlink() or not path.is_file():
            yield f"{shown} is not a file"
        elif name == ENVIRONMENT and name not in listing.files:
            if not _chosen(path.read_bytes(), listing.environment):
                yield f"{shown} is not what {folder.name}/load writes: remove it, and run load again"
        elif name not in listing.files:
            yield f"{shown} was added"
        elif sha256_file(path) != f"sha256:{listing.files[name]}":
            yield f"{shown} was changed"


def _chosen(text: bytes, environment: Mapping[str, str]) -> bool:
    lines = [f"{re.escape(name)}={pattern}\n" for name, pattern in environment.items()]
    return re.fullmatch("".join(lines).encode(), text) is not None


def _files(folder: Path) -> Iterator[str]:
    """Every entry that is no folder, links included; without those in FREE. Raises StorageError."""

    def refuse(error: OSError) -> None:
        raise errors.from_os(error)

    for where, folders, files in os.walk(folder, onerror=refuse):
        here = Path(where)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if str((here / name).relative_to(folder)) not in FREE]
        yield from (str((here / name).relative_to(folder)) for name in (*files, *links))
