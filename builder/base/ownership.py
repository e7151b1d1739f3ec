"""Files of other people: where Vetted writes into a folder that is not its own, it replaces only what it wrote."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

from builder.base import errors, reading


def document(content: bytes) -> dict[str, object]:
    """The JSON object in a file, by which ours are known; an empty one where there is none."""
    try:
        read = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def refuse(path: Path, is_ours: Callable[[bytes], bool], next_step: str) -> None:
    """Raise StorageError when something is there that Vetted did not write: a file of somebody, a link, a folder.

    A link is refused wherever it leads: it would be followed to a file, or lost, and both are somebody else's.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(mode):
        raise errors.StorageError(f"{path} is a link, so it stays as it is", next_step=next_step)
    if not stat.S_ISREG(mode):
        raise errors.StorageError(f"{path} is there and is not a file", next_step=next_step)
    try:
        ours = is_ours(reading.content(path, str(path)))
    except errors.BadInputError:  # larger than any file of ours
        ours = False
    if not ours:
        raise errors.StorageError(f"{path} is not Vetted's, so it stays as it is", next_step=next_step)
