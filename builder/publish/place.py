"""A folder of the user's, in which `vetted use --into` may replace what an earlier one wrote there, and nothing else.

Code in a container can write to runs/, and replace what lies in it by a link: so nothing in runs/ is ever mounted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from builder.base import errors, ownership
from builder.base.project import Project
from builder.base.text import word
from builder.certify import certificate, conditional, verdict
from builder.publish import dotenv, hub

RECORD, CACHE = "vetted", ".huggingface"
OLD_CACHE = "runs/.huggingface"  # of versions before 2026-11-28
KEY = re.compile(r"cosign(-[0-9]+)?\.pub")


def refuse_other(folder: Path, next_step: str) -> None:
    """Raise StorageError for a file that would be replaced or followed, and is not of an earlier `vetted use`."""
    hub.refuse_links(folder / CACHE)
    dotenv.refuse_link(Project(folder))
    _refuse_old_cache(folder)
    record = folder / RECORD
    if record.is_symlink() or (record.exists() and not record.is_dir()):
        raise errors.StorageError(f"{record} is not a folder of Vetted's, so it stays as it is", next_step=next_step)
    whole = (record / verdict.VERDICT).is_file()
    for path in _written(record):
        ownership.refuse(path, _OURS.get(path.name, _is_key if KEY.fullmatch(path.name) else _is_statement), next_step)
        if KEY.fullmatch(path.name) and not whole:  # a key says not who put it there
            raise errors.StorageError(f"{path} is not Vetted's, so it stays as it is", next_step=next_step)


def _refuse_old_cache(folder: Path) -> None:
    """What was downloaded is moved by a person, once: a link in its place is not followed."""
    old, new = folder / OLD_CACHE, folder / CACHE
    if new.exists() or not old.parent.exists() or not _has_downloads(old):
        return
    parts = (old, *(old / name for name in hub.FOLDERS))
    whole = all(path.is_dir() and not path.is_symlink() for path in parts)
    raise errors.StorageError(
        f"{old} is no longer the cache of the Hub: code in a container could put a link to any folder in its place",
        cause="an earlier Vetted wrote this folder" if whole else "code in a container changed it: there is a link",
        next_step=f"mv {word(old)} {word(new)}, and run this again"
        if whole
        else f"rm -r {word(old)}, and run this again",
    )


def _has_downloads(old: Path) -> bool:
    if old.is_symlink() or not old.is_dir():
        return old.is_symlink() or old.exists()
    for part in (old / name for name in hub.FOLDERS):
        if part.is_symlink() or (part.is_dir() and any(path.name != ".gitignore" for path in part.iterdir())):
            return True
    return False


def _written(record: Path) -> Iterator[Path]:
    """What is there under the names of files that are written or removed."""
    for name in (verdict.VERDICT, conditional.FILE):
        yield record / name
    yield from keys(record)
    certificates = record / verdict.CERTIFICATES
    if certificates.is_symlink():
        yield certificates
    elif certificates.is_dir():
        yield from sorted(path for path in certificates.iterdir() if verdict.NUMBERED.fullmatch(path.name))


def keys(record: Path) -> list[Path]:
    """The public keys there."""
    return sorted(path for path in record.iterdir() if KEY.fullmatch(path.name)) if record.is_dir() else []


def _is_verdict(content: bytes) -> bool:
    return {"image", "stack", "lock", "certificates"} <= ownership.document(content).keys()


def _is_advice(content: bytes) -> bool:
    return {"stack", "lock", "advisories"} <= ownership.document(content).keys()


def _is_statement(content: bytes) -> bool:
    return ownership.document(content).get("_type") == certificate.STATEMENT


def _is_key(content: bytes) -> bool:
    return content.startswith(b"-----BEGIN PUBLIC KEY-----")


_OURS = {verdict.VERDICT: _is_verdict, conditional.FILE: _is_advice}
