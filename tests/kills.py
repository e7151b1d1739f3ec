"""Kills at named points: right before and right after a command puts a finished file or folder into place.

Everything that a command keeps is written aside and renamed, so these are the moments that matter: before one, the
work is lost; after it, the next step is. The command runs in a forked child, which kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

RENAMES = ("rename", "replace", "link")
UNEXPECTED = 99


@dataclass(frozen=True)
class Point:
    """The `number`-th rename of a run, counted from 0, and which side of it the kill is on."""

    number: int
    before: bool


def points(command: Callable[[], None], root: Path, names: Path) -> Iterator[Point]:
    """Run the command once, write the names of what it renames below `root` into a file, and yield all points."""
    assert _forked(command, root, None, names) == 0
    for number in range(len(names.read_text().splitlines())):
        yield Point(number, before=True)
        yield Point(number, before=False)


def kill(command: Callable[[], None], root: Path, point: Point, names: Path) -> None:
    """Run the command and kill it with SIGKILL at a point that its run must reach."""
    assert _forked(command, root, point, names) == -signal.SIGKILL, point


def _forked(command: Callable[[], None], root: Path, point: Point | None, names: Path) -> int:
    names.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        status = UNEXPECTED
        try:
            _watch(root, point, names)
            command()
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _watch(root: Path, point: Point | None, names: Path) -> None:
    """Wrap the functions that rename. pathlib calls them through `os`, so it is covered too."""
    count = 0

    def watched(real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: str | Path, target: str | Path, *more: object, **options: object) -> None:
            nonlocal count
            if not Path(os.fsdecode(target)).is_relative_to(root):
                return real(source, target, *more, **options)
            number, count = count, count + 1
            if point == Point(number, before=True):
                os.kill(os.getpid(), signal.SIGKILL)
            real(source, target, *more, **options)
            with names.open("a") as file:
                file.write(f"{Path(os.fsdecode(target)).relative_to(root)}\n")
            if point == Point(number, before=False):
                os.kill(os.getpid(), signal.SIGKILL)
            return None

        return rename

    for name in RENAMES:
        setattr(os, name, watched(getattr(os, name)))
