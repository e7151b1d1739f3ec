"""Running the suite: one process that is asked in one line of JSON and answers with events."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from builder.base import errors, process
from builder.certify import engine, hostenv
from builder.certify.certificate import ProbeResult

Event = dict[str, Any]

BAD_REQUEST = 3  # the exit status of a runner that refuses what it was asked


@dataclass(frozen=True)
class Runner:
    """The command that runs the suite where the stack is, and its environment variables."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """What the runner is asked. `distributions` is what should be installed: normalised name to version."""

    device: str
    distributions: Mapping[str, str]
    probes: tuple[str, ...] = ()  # empty: all of them
    seed: int = 0


@dataclass(frozen=True)
class Answer:
    """Every probe's result; the stack's Python version; how long the imports that all probes share took."""

    results: tuple[ProbeResult, ...]
    python: str
    imports_s: float = 0.0


def on_host(environment: Path, root: Path, temporary: Path) -> Runner:
    """The suite copied below `root`, in an environment that hostenv made; it writes below `temporary` only."""
    temporary.mkdir()
    return Runner(
        engine.on_host(root, environment),
        {
            **hostenv.environment(environment),
            "PYTHONPATH": "",
            "TMPDIR": str(temporary),
            "PYTHONDONTWRITEBYTECODE": "",
        },
    )


def memory_mib() -> int:
    """What the suite may use: the machine's memory less room for the machine itself."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return max(total - 2048, total * 3 // 4)


def run(
    runner: Runner,
    asked: Asked,
    scratch: Path,
    on_event: Callable[[Event], None],
    until: Callable[[ProbeResult], bool] = lambda _: False,
) -> Answer:
    """Run the suite and collect what it reports; stop, with what there is, at a result that `until` is true of.

    Raises BadInputError when the runner refuses what it was asked, VettedError when it says nothing at all, says
    something out of turn, or ends badly after it has reported everything.
    """
    request = {
        "device": asked.device,
        "probes": list(asked.probes) or None,
        "distributions": dict(asked.distributions),
        "seed": asked.seed,
        "memory_mib": memory_mib(),
    }
    record = Record(asked.probes)
    log = scratch / "suite.log"
    with (
        log.open("wb") as stderr,
        process.running(runner.command, env=runner.environment, stdin=subprocess.PIPE, stderr=stderr, cwd=scratch)
        as child,
    ):  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # it died at once; its exit code and its log say why
        for line in child.stdout:
            if not line.endswith("\n"):
                break  # cut off: the runner died while it wrote
            event = record.take(line)
            on_event(event)
            if event["event"] == "end" and until(record.results[-1]):
                return record.answer()
        code = child.wait()
    said = log.read_text(errors="replace")
    if code == BAD_REQUEST and not record.expected:
        raise errors.BadInputError(
            said.strip().splitlines()[-1] if said.strip() else "the suite refused the request",
            next_step="the same command without --probe",
        )
    if runner.command[0] == "docker" and errors.NO_DAEMON.search(said):
        raise errors.from_tool("running the suite", said)
    if not record.expected or (record.finished and code != 0):
        raise errors.from_tool(f"running the suite ({Path(runner.command[0]).name}, exit code {code})", said)
    if not record.finished and not record.missing:
        raise errors.from_tool(f"running the suite to its end ({Path(runner.command[0]).name}, exit code {code})", said)
    # A runner that died took its remaining probes with it: they have not passed.
    record.results += [
        ProbeResult(
            name=name,
            outcome="crashed",
            reason=f"the suite's runner ended early (exit code {code})",
            log_tail=said[-4000:] or None,
        )
        for name in record.missing
    ]
    return record.answer()


class Record:
    """What a runner has said so far, each thing in its turn: start, ready, begin and end of every probe, finish.

    Anything else is refused: the runner's output is its own, so whoever writes to it besides has broken into it.
    """

    def __init__(self, asked: Sequence[str]) -> None:
        self.asked = list(dict.fromkeys(asked))
        self.expected: list[str] = []
        self.results: list[ProbeResult] = []
        self.python, self.imports_s, self.finished = "", 0.0, False
        self._running: str | None = None

    @property
    def missing(self) -> list[str]:
        """The probes that have no result."""
        return self.expected[len(self.results) :]

    def answer(self) -> Answer:
        return Answer(tuple(self.results), self.python, self.imports_s)

    def take(self, line: str) -> Event:
        """Take one line of the runner's output. Raises VettedError when it is not the runner's turn to say that."""
        event = _event(line)
        if event is None:
            raise _refusal("something that is no event", line)
        try:
            self._take(event)
        except (KeyError, TypeError, ValueError) as error:
            raise _refusal(f"an event out of turn or of another form ({error})", line) from error
        return event

    def _take(self, event: Event) -> None:
        kind = event["event"]
        if self.finished or (kind == "start") != (not self.expected):
            raise ValueError(f"{kind!r} {'after the end' if self.finished else 'before or after the start'}")
        if kind == "start":
            names = [str(name) for name in event["probes"]]
            if not names or len(set(names)) != len(names) or (self.asked and names != self.asked):
                raise ValueError(f"probes {names}")
            self.python, self.expected = str(event["python"]), names
        elif kind == "ready":
            self.imports_s = float(event.get("seconds", 0.0))
        elif kind == "begin":
            if self._running is not None or event["probe"] not in self.missing[:1]:
                raise ValueError(f"probe {event['probe']!r}")
            self._running = str(event["probe"])
        elif kind in ("measured", "end"):
            if self._running is None or event["probe"] != self._running:
                raise ValueError(f"probe {event['probe']!r}")
            if kind == "end":
                self.results.append(_result(event))
                self._running = None
        elif kind == "finish":
            if self.missing:
                raise ValueError(f"without {', '.join(self.missing)}")
            self.finished = True
        else:
            raise ValueError(f"{kind!r}")


def _refusal(what: str, line: str) -> errors.VettedError:
    return errors.VettedError(
        f"the suite's runner said {what}: {line.strip()[:200]!r}",
        cause="something of the stack wrote to the runner's output, or smoke/ and builder/ are of different versions",
        next_step="git status smoke builder; then run this again",
    )


def _event(line: str) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _result(event: Event) -> ProbeResult:
    data = {key: value for key, value in event.items() if key not in ("event", "probe")}
    try:
        result = ProbeResult.model_validate({"name": event["probe"], **data})
        if result.outcome == "passed" and (wrong := [one.name for one in result.measurements if not one.ok]):
            return result.model_copy(update={"outcome": "failed", "reason": f"passed beside {', '.join(wrong)}"})
        return result
    except ValidationError as error:
        # Not a number, say: a result that cannot be written down is not a pass.
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        seconds = event.get("seconds")
        return ProbeResult(
            name=event["probe"],
            outcome="failed",
            reason=f"its result cannot be recorded: {where}: {first['msg']}",
            seconds=seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0,
        )
