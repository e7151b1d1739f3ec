"""Running buildx: its progress, step by step, and the end of its log when it fails."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from builder.base import errors, process


@dataclass(frozen=True)
class BuildStep:
    """One line of a build's progress: the steps done, the steps known so far, and what runs now."""

    done: int
    known: int
    current: str


Reporter = Callable[[BuildStep], None]


def run(name: str, argv: Sequence[str], report: Reporter, env: Mapping[str, str] | None = None) -> None:
    """Run buildx with raw progress. Raises VettedError with the end of the failed step's log."""
    progress = Progress(report)
    with process.running(argv, env=env, stdout=subprocess.DEVNULL) as child:
        assert child.stderr is not None
        for line in child.stderr:
            progress.feed(line)
        code = child.wait()
    if code != 0:
        raise failed(name, progress.failure())


UNBUILT = re.compile(r"^error: Failed to build `/mnt/wheels/(?P<file>[^`]+)`", re.MULTILINE)
LAST = 8  # lines of what a build said


def failed(name: str, output: str) -> errors.VettedError:
    """The error that fits what a build said, which is of a source distribution where uv names one."""
    if unbuilt := UNBUILT.search(output):
        words = output[: unbuilt.start()].rstrip().splitlines()[-LAST:]
        return errors.BadInputError(
            "\n".join([f"{name}: {unbuilt['file']} cannot be built in the image", *words]),
            cause="it has no wheel, and its build wants a compiler, a network, or a package that it does not declare",
            next_step="build a wheel of it yourself, and name that file in the requirements; or leave it out",
        )
    return errors.from_tool(f"building {name}", output, next_step="docker info, and `vetted lock --check`")


class _Vertex(TypedDict, total=False):
    """A step of BuildKit's graph; `started` and `completed` are times."""

    digest: str
    name: str
    started: str
    completed: str
    error: str


class Progress:
    """Reads BuildKit's progress events. Any other line is a message of buildx itself.

    buildx 0.13 spreads an event over indented lines; later versions write it on one line.
    """

    def __init__(self, report: Reporter) -> None:
        self.report = report
        self.vertices: dict[str, _Vertex] = {}
        self.logs: list[str] = []
        self.messages: list[str] = []
        self._event = ""  # the part that was read of an event

    def feed(self, line: str) -> None:
        """Take one line of buildx's standard error."""
        if not self._event and not line.startswith("{"):
            self.messages.append(line)
            return
        self._event += line
        if not line.rstrip().endswith("}") or line[0] not in "{}":
            return
        try:
            event = json.loads(self._event)
        except ValueError:
            return
        self._event = ""
        for vertex in event.get("vertexes") or []:
            self.vertices.setdefault(vertex["digest"], {}).update(vertex)
        for log in event.get("logs") or []:
            self.logs.append(base64.b64decode(log["data"]).decode(errors="replace"))
        running = [v for v in self.vertices.values() if v.get("started") and not v.get("completed")]
        done = sum(1 for v in self.vertices.values() if v.get("completed"))
        current = " · ".join(stage(v["name"]) for v in running[-2:])
        self.report(BuildStep(done, len(self.vertices), current))

    def failure(self) -> str:
        """The end of the log, buildx's own messages, and the errors of the steps that failed."""
        failed = [vertex["error"] for vertex in self.vertices.values() if vertex.get("error")]
        return "".join(self.logs[-40:]) + "\n" + "".join(self.messages) + "\n".join(failed)


def stage(name: str) -> str:
    """The stage of a step, which says enough: `[torch 1/1] RUN --mount=…` -> `torch`."""
    if name.startswith("[") and "]" in name:
        return name[1 : name.index("]")].split(" ")[0]
    return name[:40]
