"""The transcript of a run: what the suite's runner reports, one line of JSON for each event, each in its turn.

Anything else is refused. The runner's output belongs to the runner alone: if something else writes to it, the stack has
broken into it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Required, TypedDict, cast

from pydantic import ValidationError

from builder.base import errors
from builder.certify.certificate import ProbeResult


class Event(TypedDict, total=False):
    """One report of the runner: start, ready, begin, measured, end or finish. `end` has a ProbeResult's fields, too."""

    event: Required[str]
    probes: list[str]  # start: the probes, in the order in which they run
    python: str  # start: the version of the stack's Python
    probe: str  # begin, measured, end
    seconds: float  # ready, end
    compute_s: float  # measured: the seconds of the probe itself
    outcome: str  # end
    reason: str | None  # end
    log_tail: str | None  # end


@dataclass(frozen=True)
class Answer:
    """The result of every probe, the stack's Python version, and the seconds of the imports that all probes share."""

    results: tuple[ProbeResult, ...]
    python: str
    imports_s: float = 0.0


class Transcript:
    """The events of a run so far. `requested`: the probes that the runner has to run; empty for all of them."""

    def __init__(self, requested: Sequence[str]) -> None:
        self.requested = list(dict.fromkeys(requested))
        self.expected: list[str] = []
        self.results: list[ProbeResult] = []
        self.python, self.imports_s, self.finished = "", 0.0, False
        self._running: str | None = None

    @property
    def missing(self) -> list[str]:
        """The probes that have no result."""
        return self.expected[len(self.results) :]

    def answer(self) -> Answer:
        """The results so far."""
        return Answer(tuple(self.results), self.python, self.imports_s)

    def take(self, line: str) -> Event:
        """Take one line of the runner's output. Raises VettedError when it is no event, or out of turn."""
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
            self._start(event)
        elif kind == "ready":
            self.imports_s = float(event.get("seconds", 0.0))
        elif kind in ("begin", "measured", "end"):
            self._probe(event)
        elif kind == "finish":
            if self.missing:
                raise ValueError(f"without {', '.join(self.missing)}")
            self.finished = True
        else:
            raise ValueError(f"{kind!r}")

    def _start(self, event: Event) -> None:
        names = [str(name) for name in event["probes"]]
        if not names or len(set(names)) != len(names) or (self.requested and names != self.requested):
            raise ValueError(f"probes {names}")
        self.python, self.expected = str(event["python"]), names

    def _probe(self, event: Event) -> None:
        """A probe begins, is measured or ends: only the next one may begin, and only that one ends."""
        expected = self.missing[:1] if self._running is None else [self._running]
        if (event["event"] == "begin") != (self._running is None) or event["probe"] not in expected:
            raise ValueError(f"probe {event['probe']!r}")
        self._running = str(event["probe"])
        if event["event"] == "end":
            self.results.append(_result(event))
            self._running = None


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
    return cast("Event", event) if isinstance(event, dict) and "event" in event else None


def _result(event: Event) -> ProbeResult:
    data: dict[str, Any] = {key: value for key, value in event.items() if key not in ("event", "probe")}
    try:
        result = ProbeResult.model_validate({"name": event["probe"], **data})
    except ValidationError as error:
        # For example, a number that is not finite: a result that cannot be recorded has not passed.
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        seconds: object = event.get("seconds")
        return ProbeResult(
            name=event["probe"],
            outcome="failed",
            reason=f"its result cannot be recorded: {where}: {first['msg']}",
            seconds=seconds if isinstance(seconds, float) and math.isfinite(seconds) else 0.0,
        )
    if result.outcome == "passed" and (wrong := [number.name for number in result.measurements if not number.ok]):
        return result.model_copy(update={"outcome": "failed", "reason": f"passed beside {', '.join(wrong)}"})
    return result
