"""Mutants that pass all probes are killed when their training leaves the band, and only then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builder.certify import hostenv, suite
from builder.certify.suite import Runner
from builder.trajectory import record, training
from builder.trajectory.record import Record
from builder.trajectory.training import Settings, Trained
from tests.conftest import ROOT, Small
from tests.mutants import hunt, trajectories
from tests.mutants.hunt import Hunt, Verdict
from tests.unit.mutants.conftest import place
from tests.unit.trajectory.kit import make


class Training:
    """In place of a real one: what an environment trains, and what was asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trains: Record) -> None:
        self.trains = trains
        self.asked: list[int] = []
        monkeypatch.setattr(suite, "on_host", lambda *_: Runner([]))
        monkeypatch.setattr(training, "run", self.run)

    def run(self, _runner: Runner, _device: str, settings: Settings, *_: Any) -> Trained:
        self.asked.append(settings.seeds)
        return Trained(self.trains.seeds[: settings.seeds], self.trains.failed, "3.11")


@pytest.fixture
def golden() -> Record:
    return make(1, task=record.task(ROOT / "smoke"))


def test_the_same_bits_in_two_seeds_are_enough(monkeypatch: pytest.MonkeyPatch, golden: Record, tmp_path: Path) -> None:
    mutant = Training(monkeypatch, golden)
    assert trajectories.strays(golden, tmp_path, ROOT, tmp_path) is None
    assert mutant.asked == [2]


def test_other_bits_are_judged_by_the_band(monkeypatch: pytest.MonkeyPatch, golden: Record, tmp_path: Path) -> None:
    mutant = Training(monkeypatch, make(2))
    assert trajectories.strays(golden, tmp_path, ROOT, tmp_path) is None
    assert mutant.asked == [2, 12]
    Training(monkeypatch, make(2, change=lambda _name, _step, value: value + 1))
    assert ": the training changes: " in str(trajectories.strays(golden, tmp_path, ROOT, tmp_path))
    failed = dict.fromkeys(range(1, 13), "RuntimeError: no")
    Training(monkeypatch, make(2, seeds=0, failed=failed))
    assert "12 of 12 seeds fail" in str(trajectories.strays(golden, tmp_path, ROOT, tmp_path))


def test_a_survivor_that_strays_is_killed_and_both_are_remembered(
    calculator: Small, monkeypatch: pytest.MonkeyPatch, golden: Record, tmp_path: Path
) -> None:
    survivor = place(calculator, tmp_path, find="return add(a, a)", replace="return 0")

    def hunting(band: Record | None) -> Hunt:
        watcher = type("Silent", (), dict.fromkeys(("started", "event", "finished"), lambda *_a, **_k: None))()
        made = Hunt(calculator.project, calculator.lock, calculator.scratch(), watcher, band)
        made.adopt(hostenv.path(calculator.project, calculator.lock))
        return made

    baseline = hunt.Baseline(probes={"sums": 0.1, "blind": 0.1}, seconds=0.2)
    assert hunting(None).run([survivor], baseline, 1)["one"].outcome == "survived"
    monkeypatch.setattr(trajectories, "strays", lambda *_: "the training changes")
    killed = hunting(golden).run([survivor], baseline, 1)["one"]
    assert (killed.outcome, killed.by, killed.reason) == ("killed", "golden trajectories", "the training changes")
    monkeypatch.setattr(trajectories, "strays", lambda *_: None)
    assert hunting(golden).run([survivor], baseline, 1)["one"] == killed
    assert hunting(None).run([survivor], baseline, 1)["one"].outcome == "survived"
    kept = [Verdict(**json.loads(file.read_text())) for file in (calculator.project.state / "mutants").iterdir()]
    assert {verdict.outcome for verdict in kept} == {"killed", "survived"}
