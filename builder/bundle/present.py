"""The files that a host has, by their sha256: as `scripts/first_contact.py look` wrote them down, and on the host."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter, ValidationError

from builder.base import errors, reading
from builder.base.project import sha256_file
from builder.certify.certificate import Digest

LISTED = "files.json"  # sha256 to bytes
COMMAND = "on the host: python3 scripts/first_contact.py look --out look; then bring the folder back"
AT_ONCE = 8
SHOWN = 8  # names in a message
_FILES = TypeAdapter(dict[Digest, int], config=ConfigDict(strict=True))


def read(folder: Path) -> dict[str, int]:
    """The files of a host, sha256 to bytes, from the folder that `look` wrote. Raises BadInputError."""
    path = folder / LISTED
    try:
        return _FILES.validate_json(reading.content(path, str(path), COMMAND))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.BadInputError(f"{path} does not exist", next_step=COMMAND) from error
    except (ValidationError, RecursionError) as error:
        raise errors.BadInputError(
            f"{path} does not list the files of a host: {str(error).splitlines()[0]}", next_step=COMMAND
        ) from error


def can_mount(folder: Path) -> bool:
    """Whether that host can run an image without Docker: by the folder that `look` wrote, root may mount there."""
    try:
        machine = json.loads(reading.content(folder / "machine.json", "machine.json"))
        return machine["user"] == 0 and machine["mounts"] is True
    except (OSError, errors.BadInputError, ValueError, KeyError, TypeError, RecursionError):
        return False


def need(
    folders: Iterable[Path], lacking: Mapping[str, Mapping[str, int]], report: Callable[[str], None]
) -> dict[str, Path]:
    """Where the files are that a bundle leaves out (of what, sha256 to bytes). Raises BadInputError when one is not."""
    files = {digest: size for sizes in lacking.values() for digest, size in sizes.items()}
    if not files:
        return {}
    report(f"looking for {len(files)} files of the host")
    paths = find(folders, files)
    if absent := {what: sizes for what, sizes in lacking.items() if not sizes.keys() <= paths.keys()}:
        count, names = len(files) - len(paths), list(absent)
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise errors.BadInputError(
            f"this host lacks {count} of the files that the bundle leaves out: those of "
            + ", ".join(names[:SHOWN])
            + more,
            cause="it was made for another host, another Python runs this, or a package was changed after `look`",
            next_step="run this with the Python that ran `look`, or make the bundle again",
        )
    return paths


def find(folders: Iterable[Path], sizes: Mapping[str, int]) -> dict[str, Path]:
    """Where these files (sha256 to bytes) are below some folders; those that are nowhere are left out."""
    possible = set(sizes.values())
    candidates = [path for folder in folders for path in _files(folder) if _size(path) in possible]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        digests = list(pool.map(_digest, candidates))
    paths = {digest: path for digest, path in zip(digests, candidates, strict=True) if digest}
    return {digest: paths[digest] for digest in sizes if digest in paths}


def _files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:
        return -1


def _digest(path: Path) -> str | None:
    try:
        return sha256_file(path).removeprefix("sha256:")
    except OSError:
        return None  # nobody may read it
