"""Running the suite's runner as its callers do: a process, a request, events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 60  # for what happens in a blink, unless it never does

Event = dict[str, Any]


class Run:
    """A runner at work. What it and everything below it writes lies in `directory`."""

    def __init__(self, directory: Path, probes: Path | None, request: str | None, **environment: str) -> None:
        self.directory = directory
        command = [sys.executable, "-W", "error", "-m", "smoke", *(["--probes", str(probes)] if probes else [])]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(directory), **environment},
        )
        if request is not None:
            assert self.process.stdin
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()

    def events(self) -> list[Event]:
        """All events up to the end, with standard input left open."""
        assert self.process.stdout
        return [json.loads(line) for line in self.process.stdout]

    def status(self) -> int:
        """The exit status."""
        return self.process.wait(PATIENCE_S)

    def errors(self) -> str:
        """What it wrote to standard error."""
        assert self.process.stderr
        return self.process.stderr.read()

    def close(self) -> None:
        """Close the pipes; the runner then ends by itself."""
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait(PATIENCE_S)

    def processes(self) -> dict[int, list[str]]:
        """All processes of this run, with their command lines, whatever their parent is."""
        mark = f"TMPDIR={self.directory}".encode()
        commands = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    commands[int(entry.name)] = (entry / "cmdline").read_text().split("\0")
        return commands


def wait_until(condition: Callable[[], bool]) -> None:
    """Return as soon as the condition is true; fail if it never is."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition never became true"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start runners: `start(probes, request, **environment)`; they end with the test."""
    runs: list[Run] = []

    def start_run(probes: str | None = None, request: Any = None, **environment: str) -> Run:
        text = request if request is None or isinstance(request, str) else json.dumps(request)
        runs.append(Run(tmp_path, HERE / probes if probes else None, text, **environment))
        return runs[-1]

    yield start_run
    for run in runs:
        run.close()
