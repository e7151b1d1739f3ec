"""The order of the probes that look at a mutant, and that the first red one is the last."""

from __future__ import annotations

from pathlib import Path

from builder.certify import hostenv, transcript
from tests.conftest import Small
from tests.mutants import hunt
from tests.mutants.hunt import Baseline, Hunt, Verdict
from tests.unit.mutants.conftest import place


class Notes:
    """A watcher that remembers the events of one run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, name: str) -> None:
        self.events = [name]

    def event(self, name: str, event: transcript.Event) -> None:
        assert name == self.events[0]
        self.events.append(" ".join(str(event[key]) for key in ("event", "probe") if key in event))

    def finished(self, name: str, verdict: Verdict | None, remembered: bool) -> None:
        pass


def test_the_first_red_probe_ends_the_run(calculator: Small, tmp_path: Path) -> None:
    notes = Notes()
    hunting = Hunt(calculator.project, calculator.lock, calculator.scratch(), notes)
    hunting.adopt(hostenv.path(calculator.project, calculator.lock))
    hunting.baseline()
    assert notes.events[-1] == "finish"
    baseline = Baseline(probes={"sums": 0.1, "blind": 5.0}, seconds=5.1)
    verdicts = hunting.run([place(calculator, tmp_path)], baseline, jobs=2)
    assert verdicts["one"].by == "sums"
    assert notes.events[-1] == "end sums"
    assert "begin blind" not in notes.events


def test_the_probe_that_kills_most_in_a_second_comes_first() -> None:
    baseline = Baseline(probes={"slow": 9.0, "quick": 1.0, "middle": 2.0}, seconds=12.0)
    assert hunt._order(baseline, []) == ("quick", "middle", "slow")
    kills = [Verdict(outcome="killed", by=by, seconds=1.0) for by in ("middle", "middle", "slow")]
    survived = Verdict(outcome="survived", seconds=1.0)
    assert hunt._order(baseline, [*kills, survived]) == ("middle", "quick", "slow")
