"""A folder that a person names for an answer: it is there whole, or not at all, and nothing of theirs is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from builder.base import errors
from builder.base.project import remove

NEXT = "choose another --output"


def refuse(output: Path, is_ours: Callable[[Path], bool] = lambda _: False, kind: str = "not an empty folder") -> None:
    """Raise StorageError when something is there, unless it is an empty folder or one that may be replaced."""
    if output.is_symlink():
        raise errors.StorageError(f"{output} is a link, so it stays as it is", next_step=NEXT)
    if output.exists() and not (output.is_dir() and (_is_empty(output) or is_ours(output))):
        raise errors.StorageError(f"{output} exists and is {kind}", next_step=NEXT)


@contextmanager
def folder(output: Path) -> Iterator[Path]:
    """A folder to fill: what is in it takes the place of `output` when all went well; else nothing of it stays."""
    target = output.absolute()
    # A folder that is there may be the root of another disk, to which nothing from outside of it can be renamed.
    inside = target.is_dir() and _is_empty(target)
    partial = (target if inside else target.parent) / _partial(target)
    earlier = target.with_name(f".{target.name}.vetted-earlier")
    remove(partial)
    if os.path.lexists(earlier) and not os.path.lexists(target):  # a command was killed between two renames
        earlier.rename(target)
    remove(earlier)
    try:
        partial.mkdir(parents=True)
        yield partial
        if inside:
            for path in sorted(partial.iterdir()):
                path.rename(target / path.name)
        else:
            if os.path.lexists(target):  # to remove its files may take minutes
                target.rename(earlier)
            partial.rename(target)
            remove(earlier)
    finally:
        remove(partial)


def _partial(target: Path) -> str:
    """The name of the unfinished folder: no person gives one such a name."""
    return f".{target.absolute().name}.vetted-partial"


def _is_empty(folder: Path) -> bool:
    """But for what a killed process left."""
    return all(path.name == _partial(folder) for path in folder.iterdir())
