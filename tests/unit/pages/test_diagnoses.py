"""The doctor's benchmark in the documents: the first look stays, and what is measured now is beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import diagnoses as recorder
from builder.base import errors
from builder.pages import diagnoses, evidence, records
from tests.conftest import ROOT, Small


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    lines = (ROOT / "benchmarks" / "cases" / "batch-1.jsonl").read_text().splitlines()
    kinds = {bool(json.loads(line)["culprit"]): line for line in lines}
    path = tmp_path / "batch-9.jsonl"
    path.write_text("\n".join(kinds.values()))
    return path


def test_the_first_look_is_recorded_once(small: Small, batch: Path) -> None:
    assert diagnoses.results(small.project) == "Not measured yet.\n"
    root = ["--root", str(small.root)]
    assert recorder.main(["--first-look", *root, str(batch)]) == 0
    with pytest.raises(errors.BadInputError, match="this look at batch-9 is recorded"):
        recorder.main(["--first-look", *root, str(batch)])
    first = evidence.read(small.project, records.Diagnoses)
    assert first is not None and first.batches[0].now is None
    assert recorder.main([*root, str(batch)]) == 0
    now = evidence.read(small.project, records.Diagnoses)
    assert now is not None
    assert (now.batches[0].first, now.batches[0].reports) == (first.batches[0].first, 2)
    assert now.batches[0].now is not None


def test_a_row_for_each_look(small: Small, batch: Path) -> None:
    for more in (["--first-look"], []):
        recorder.main([*more, "--root", str(small.root), str(batch)])
    path = evidence.path(small.project, "doctor")
    document = json.loads(path.read_text())
    document["batches"][0]["first"] = {
        "top1": 0.5, "mends_top1": 0.25, "mends_top3": 0.75, "confident_wrong": 0.025, "confident_on_negatives": 1,
    }  # fmt: skip
    document.update(
        {"slowest_s": 0.26, "memory_mib": 71, "shipped_kib": 2560, "seconds_per_step": {"read the knowledge": 0.1234}}
    )
    path.write_text(json.dumps(document))
    text = diagnoses.results(small.project)
    row = "| batch-9 | 1 with a culprit, 1 without | at first look | 25 % | 75 % | 50 % | 2.5 % | 1 of 1 |"
    assert row in text.splitlines()
    assert text.count("| batch-9 |") == 2 and " | after learning from it | " in text
    text = diagnoses.summary(small.project)
    assert "the first finding fixed 25 % of the reports of a batch, and 2.5 % were confidently wrong (1 batch)" in text
    assert "The slowest report took 0.3 s, all of them 71 MiB of memory" in text
    assert "read the knowledge 123 ms. The doctor and what it knows are 2.5 MiB. " in text


def test_the_reports_of_the_development_are_measured_where_they_are(small: Small, batch: Path) -> None:
    beside = small.root.parent / recorder.DEVELOPMENT
    beside.parent.mkdir()
    beside.write_text(batch.read_text())
    recorder.main(["--root", str(small.root), str(batch)])
    beside.unlink()
    recorder.main(["--root", str(small.root), str(batch)])  # the row that was recorded stays
    record = evidence.read(small.project, records.Diagnoses)
    assert record is not None and [row.name for row in record.batches] == ["batch-9", "cases-dev"]
