"""A look at a stack takes most of a minute: what it found is said before the next one begins."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.lock import lockfile
from builder.upgrade.watch import watch
from tests.conftest import TINY, Small
from tests.unit.conftest import Command


def test_what_is_new_is_said_before_the_next_stack_is_looked_at(
    small: Small, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(home: Project, name: str, day: datetime.date, _: Path) -> watch.Watched:
        if name == "other":
            raise errors.NetworkError("the index went away")
        return watch.Watched(lockfile.load(home, name), day, ["its certificate ends tomorrow"])

    monkeypatch.setattr(watch, "look", look)
    shutil.copytree(small.root / "lockfiles" / TINY, small.root / "lockfiles" / "other")
    answer = command(small.root, "watch", TINY, "other", "--dry-run")
    assert answer.out.splitlines() == [
        f"{TINY}: its certificate ends tomorrow",
        f"{TINY}: nothing is newer than its pins",
    ]
    assert "the index went away" in answer.err
