"""The manifest of a bundle: its parts and their checksums. It decides which files are read and what they are called."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import NamedTuple

from .stop import NO, NOT_YET, StopError

MANIFEST = "manifest.json"
FORMAT = 2
PART_NAME = re.compile(r"[a-z0-9][a-z0-9.+_-]*\.part[0-9]{3,6}")


class Part(NamedTuple):
    name: str
    size: int
    sha256: str


class Manifest(NamedTuple):
    stack: str
    device: str
    python: str
    carried: bool  # whether the bundle has this Python; else the host must
    size: int
    parts: tuple[Part, ...]
    digest: str  # of the manifest itself: the identity of the bundle


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a bundle."""
    path = folder / MANIFEST
    copy = "copy it again from where the bundle was made"
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise StopError(NOT_YET, f"{path} is missing", "it is the last file that a bundle gets", copy) from error
    try:
        data = json.loads(raw)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, not {FORMAT}")
        parts = tuple(Part(part["name"], part["size"], part["sha256"]) for part in data["parts"])
        stack, device, python, size = data["stack"], data["device"], data["python"], data["size"]
        carried = data["carried"]
        _check(re.fullmatch(r"[a-z0-9][a-z0-9.+_-]*", stack), "stack", stack)
        _check(device in ("cpu", "cuda"), "device", device)
        _check(re.fullmatch(r"3\.[0-9]{1,2}", python), "python", python)
        _check(type(carried) is bool, "carried", carried)
        for part in parts:
            _check(PART_NAME.fullmatch(part.name), "name of a part", part.name)
            _check(type(part.size) is int and part.size > 0, "size of a part", part.size)
            _check(re.fullmatch(r"[0-9a-f]{64}", part.sha256), "checksum", part.sha256)
        _check(parts and len({part.name for part in parts}) == len(parts), "list of parts", [p.name for p in parts])
        _check(type(size) is int and size == sum(part.size for part in parts), "size", size)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StopError(NO, f"{path} is not a manifest: {reason}", "it was damaged or edited", copy) from error
    return Manifest(stack, device, python, carried, size, parts, hashlib.sha256(raw).hexdigest())


def _check(holds: object, what: str, value: object) -> None:
    if not holds:
        raise ValueError(f"its {what} cannot be {value!r}")
