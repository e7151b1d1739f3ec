"""A file with its seal, that are replaced together: a kill between the two loses neither the old content nor the new.

The seal is named after the content that it is for. So that of the old content stays until the new one is in place.
"""

from __future__ import annotations

import glob
from pathlib import Path

from builder.base import seal
from builder.base.project import sha256, write

DIGITS = 12  # of the hash, in the name of a seal


def replace(path: Path, what: str, content: bytes, scratch: Path) -> None:
    """Write a file that is sealed as `what`."""
    own = _seal(path, content)
    seal.put(own, what, sha256(content), scratch)  # first: a kill between leaves both
    write(path, content, scratch)
    for earlier in path.parent.glob(f"{glob.escape(path.stem)}.{'[0-9a-f]' * DIGITS}.seal"):
        if earlier != own:
            earlier.unlink(missing_ok=True)


def intact(path: Path, what: str, content: bytes) -> bool:
    """Was this content of the file sealed as `what`?"""
    return seal.intact(_seal(path, content), what, sha256(content))


def _seal(path: Path, content: bytes) -> Path:
    return path.with_suffix(f".{sha256(content).removeprefix('sha256:')[:DIGITS]}.seal")
