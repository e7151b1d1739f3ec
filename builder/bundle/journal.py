"""What a run on a borrowed host has done so far: written as it comes, because the host may go at any moment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.bundle.unbundle.work import RESULTS, STATUS
from builder.certify.transcript import Event
from builder.image.buildx import BuildStep

EVENTS = "events.jsonl"


class Journal:
    """Keeps results/status.json and results/events.jsonl, and passes everything on."""

    def __init__(self, state: Path, on_step: Callable[[BuildStep], None], on_event: Callable[[Event], None]) -> None:
        self.folder = state / RESULTS
        self.folder.mkdir(parents=True, exist_ok=True)
        self.state: dict[str, Any] = {"step": "starting", "of": None, "probes": {}}
        self._on_step, self._on_event = on_step, on_event
        (self.folder / EVENTS).write_bytes(b"")

    def step(self, step: BuildStep) -> None:
        self.state["step"] = step.current
        self._write()
        self._on_step(step)

    def event(self, event: Event) -> None:
        with (self.folder / EVENTS).open("a") as file:
            file.write(json.dumps(event) + "\n")
        kind = event["event"]
        if kind == "start":
            self.state |= {"step": "importing the stack", "of": len(event["probes"])}
        elif kind == "begin":
            self.state["step"] = event["probe"]
        elif kind == "end":
            self.state["probes"][event["probe"]] = event["outcome"]
        if kind in ("start", "begin", "end"):
            self._write()
        self._on_event(event)

    def end(self, code: int, answer: str) -> None:
        """The run has come to its end, with this exit code."""
        self.state |= {"step": "ended", "exit": code, "answer": answer}
        self._write()

    def _write(self) -> None:
        partial = self.folder / f".{STATUS}.partial"
        partial.write_text(json.dumps(self.state, indent=1) + "\n")
        partial.replace(self.folder / STATUS)
