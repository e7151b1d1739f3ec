"""What the benchmarks of size are made of: varied certificates that hold, the best schedule, and their documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fleet, scaled
from builder.base.project import Project
from builder.certify import certificate
from builder.certify.assessment import Assessments
from builder.lock import lockfile
from builder.pages import evidence, generate
from tests.conftest import Small


def test_varied_certificates_hold_and_differ(real: Project, tmp_path: Path) -> None:
    sample = scaled.make(real, tmp_path / "scaled", 40)
    assert len(sample.stacks) == 2
    assessments = Assessments(sample.project)
    assessment = [each for name in sample.stacks for each in assessments.of(lockfile.load(sample.project, name))]
    assert [each.lasting for each in assessment] == [()] * 40
    assert len({each.sha256 for each in assessment}) == 40
    model = certificate.path(real, scaled.MODEL, "cpu", "docker").stat().st_size
    assert abs(sample.bytes / 40 / model - 1) < 0.01


def test_some_of_many_do_not_hold(real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled, "ALTERED", 10)
    sample = scaled.make(real, tmp_path / "scaled", 20)
    assessment = Assessments(sample.project).of(lockfile.load(sample.project, sample.stacks[0]))
    assert [each.name[-2:] for each in assessment if each.lasting] == ["05", "15"]


@pytest.mark.parametrize(
    ("durations", "until", "least"),
    [([60] * 5, 30, 300), ([60] * 5, 1000, 180), ([60] * 5, 60, 240), ([60, 30, 30], 30, 90), ([], 30, 0)],
)
def test_the_best_schedule(durations: list[float], until: float, least: float) -> None:
    assert fleet.ideal(durations, until) == least


def test_growth_and_loss_are_shown(small: Small) -> None:
    assert "Not measured" in generate.part(small.project, "growth", ".")
    assert "Not measured" in generate.part(small.project, "fleet loss", ".")
    times = {"first": 61.2, "first_cpu": 60.0, "again": 1.46, "again_cpu": 2.0}
    lists = {"pages": 5, "largest": 200_000, "matrix": 0.1, "all": 0.2, "stack": 0.3, "filter": 0.04}
    site = {**times, "memory": 150_000_000, "pages": 5, "files": 9, "largest": 210_000, "search": 0.05}
    row = {
        "certificates": 20000,
        "stacks": 40,
        "bytes": 10,
        "list": times,
        "show": times,
        "verify": 0.9,
        "verify_cpu": 0.5,
    }
    rows = [{**row, "lists": lists, "site": site}, {**row, "lists": lists, "site": None}]
    scale = {"cores": 2, "rows": rows, "images": [{"certificates": 97, "seconds": 9.0, "cpu": 8.0}]}
    evidence.store(small.project, "scale", {**evidence.head("it"), **scale}, small.scratch())
    shown = generate.part(small.project, "growth", ".")
    assert "| 61 s (60 s), 1.5 s (2.0 s) | 150 MB | 210.0 kB |" in shown and "| – | – | 200.0 kB |" in shown
    assert "| 20000 | 61 s (60 s), 1.5 s (2.0 s) |" in shown and "9.0 s (8.0 s) with 97" in shown
    lost = {
        "stacks": 5, "nodes": 2, "certificates": 5, "suite_s": 60.0, "kill_s": 30.0, "suites_begun": 6,
        "suites_ended": 5, "jobs_left": 0, "unit_s": [61.0] * 5, "killed_s": 35.0, "wall_s": 330.0, "ideal_s": 305.0,
        "ratio": 1.082,
    }  # fmt: skip
    evidence.store(small.project, "fleet", {**evidence.head("it"), **lost}, small.scratch())
    assert "**1.08 times** the ideal" in generate.part(small.project, "fleet loss", ".")
