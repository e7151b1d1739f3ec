"""What a run has done so far lies in files, at every moment."""

from __future__ import annotations

import json
from pathlib import Path

from builder.bundle.journal import Journal
from builder.certify.transcript import Event
from builder.image.buildx import BuildStep


def test_every_step_and_event_is_written_as_it_comes(tmp_path: Path) -> None:
    steps: list[BuildStep] = []
    seen: list[Event] = []
    journal = Journal(tmp_path, steps.append, seen.append)
    events, status = tmp_path / "results" / "events.jsonl", tmp_path / "results" / "status.json"
    journal.step(BuildStep(0, 0, "compiling"))
    assert json.loads(status.read_text())["step"] == "compiling"
    sent: list[Event] = [
        {"event": "start", "probes": ["alpha", "beta"], "python": "3.11.2"}, {"event": "begin", "probe": "alpha"},
        {"event": "measured", "probe": "alpha"}, {"event": "end", "probe": "alpha", "outcome": "passed"},
    ]  # fmt: skip
    for number, event in enumerate(sent, start=1):
        journal.event(event)
        assert [json.loads(line) for line in events.read_text().splitlines()] == sent[:number]
    state = json.loads(status.read_text())
    assert (state["of"], state["probes"]) == (2, {"alpha": "passed"})
    assert "exit" not in state
    journal.end(0, "certified")
    assert json.loads(status.read_text())["exit"] == 0
    assert (seen, len(steps)) == (sent, 1)
    Journal(tmp_path, steps.append, seen.append)
    assert events.read_bytes() == b""  # another run
