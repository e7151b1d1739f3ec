"""A stack, and an index with packages to put on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from builder.lock import lockfile
from builder.lock.lockfile import Lock
from tests.commands import Answer
from tests.conftest import TINY, Small, make_wheel
from tests.unit.conftest import Command

MINE = "mine"


class Shop:
    """A stack, and an index with packages to put on it."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        self.offer("tiny-lib", "2.0")

    def offer(self, name: str, version: str, *requires: str, **files: str) -> Path:
        module = name.replace("-", "_")
        content = {f"{module}.py": f"version = {version!r}\n"} | {
            path.replace("__", "/", 1): text for path, text in files.items()
        }
        return make_wheel(self.small.wheelhouse, name, version, content, requires)[0]

    def extend(self, lines: Sequence[str] | None, *options: str) -> Answer:
        file = self.small.root / "mine.txt"
        if lines is not None:
            file.write_text("".join(f"{line}\n" for line in lines))
        return self.command(
            self.small.root, "extend", TINY, *([str(file)] if lines is not None else []), "--name", MINE, *options
        )

    @property
    def lock(self) -> Lock:
        return lockfile.load(self.small.project, MINE)

    @property
    def folder(self) -> Path:
        return self.small.project.stacks / MINE


@pytest.fixture
def shop(wheels: Small, command: Command) -> Shop:
    return Shop(wheels, command)
