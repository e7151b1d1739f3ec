"""Two ends of tiny distributions, a wheelhouse that has both, and a suite whose one probe fails as a test sets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PYTHON, RUNNER, Small, make_wheel
from tests.unit.conftest import Command

NAMES = [f"part-{letter}" for letter in "abcdefgh"]
GOOD, BAD = "1.0", "2.0"
# One probe, which fails when the condition that the test sets holds for what is installed; it keeps a log of its runs.
SUITE = (
    RUNNER
    + """\
import importlib.metadata, os, pathlib, time
def has(name):
    try:
        return importlib.metadata.version("part-" + name) == "2.0"
    except importlib.metadata.PackageNotFoundError:
        return False
log = pathlib.Path(RUNS)
with log.open("a") as file:
    print("run", file=file)
count = len(log.read_text().splitlines())
say("start", probes=["works"], python="3.11.2")
CONDITION
say("finish")
"""
)


def condition(text: str) -> str:
    """The runner's code for: red when this holds."""
    return f"""\
if {text}:
    end("works", "failed", reason="ValueError: it broke", log_tail="it broke")
else:
    end("works")
"""


class Parts:
    """A project whose two ends are files of pins, in a wheelhouse of tiny distributions."""

    def __init__(self, small: Small, command: Command) -> None:
        self.small, self.command = small, command
        self.runs = small.root / "runs.log"
        self.good = small.root / "good.txt"
        self.bad = small.root / "bad.txt"
        self.pins(self.good, dict.fromkeys(NAMES, GOOD))
        self.pins(self.bad, dict.fromkeys(NAMES, BAD))
        for name in NAMES:
            for version in (GOOD, BAD):
                self.wheel(name, version)

    def wheel(self, name: str, version: str, requires: Sequence[str] = ()) -> None:
        module = name.replace("-", "_")
        make_wheel(self.small.wheelhouse, name, version, {f"{module}.py": f"version = {version!r}\n"}, requires)

    def pins(self, path: Path, versions: Mapping[str, str]) -> None:
        path.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))

    def suite(self, code: str) -> None:
        text = SUITE.replace("RUNS", repr(str(self.runs))).replace("CONDITION\n", code)
        (self.small.project.smoke / "__main__.py").write_text(text)

    def breaks(self, text: str) -> None:
        self.suite(condition(text))

    def argv(self, *more: str) -> list[str]:
        ends = ["--good", "good.txt", "--bad", "bad.txt", "--python", PYTHON]
        return ["bisect", "packages", *ends, "--probe", "works", *more]

    def ask(self, *more: str, code: int = 0) -> Any:
        answer = self.command(self.small.root, *self.argv("--json", *more))
        assert answer.code == code, answer.out + answer.err
        return answer.json

    def count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


@pytest.fixture
def parts(wheels: Small, command: Command) -> Parts:
    (wheels.project.advisories).mkdir()
    return Parts(wheels, command)


def names(changes: Iterable[Mapping[str, str]]) -> list[str]:
    return [change["name"] for change in changes]


def verdicts(result: Mapping[str, Any]) -> list[str]:
    return [row["verdict"] for row in result["tried"]]
