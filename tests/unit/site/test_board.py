"""The matrix: which cell a certificate is in, and on which days it was in force."""

from __future__ import annotations

import dataclasses
import datetime
import json
from pathlib import Path

import pytest

from builder.base.project import Project
from builder.certify import assessment as assessing
from builder.certify import certificate, judgement
from builder.site import board, history, stacks
from builder.site.board import CPU
from builder.site.certificates import Certificate
from builder.site.history import Version
from tests.conftest import ROOT, TINY, Small


@pytest.fixture
def gpus(real: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> stacks.StackPage:
    """A stack for CUDA without a certificate."""
    monkeypatch.setattr(history, "versions", lambda *_: [])
    return stacks.read(real, "trl1.16-cu130", tmp_path)


def test_a_stack_for_cuda_is_audited_for_gpus_and_not_for_cpus(gpus: stacks.StackPage) -> None:
    cells = board.row(gpus, board.columns([gpus]))
    assert cells[CPU] == board.NOT_FOR
    assert (cells["V100"].word, cells["H100, H200, H20"].word) == ("no kernels", "audited")
    assert cells["H100, H200, H20"].note.startswith("driver ≥ ")


@pytest.mark.parametrize(
    ("gpu", "column"), [("NVIDIA H200", "H100, H200, H20"), ("NVIDIA X999", "NVIDIA X999, driver 1")]
)
def test_a_certificate_is_in_the_column_of_its_gpu(gpus: stacks.StackPage, gpu: str, column: str) -> None:
    statement = certificate.read(ROOT / "lockfiles" / "trl1.16-cpu" / "certificates" / "cpu-docker.json")
    document = json.loads(statement.to_json())
    for resource in document["predicate"]["configuration"]:
        if resource["name"] == "hardware":
            resource["annotations"] |= {"gpus": [gpu], "class": f"2x {gpu}, driver 1"}
    statement = certificate.Statement.model_validate(document)
    assessment = assessing.summary("cuda-docker", b"", statement, judgement.terms(Project(ROOT), gpus.lock))
    entry = Certificate("trl1.16-cu130", assessment, [], "certified", b"")
    certified = dataclasses.replace(gpus, current=[entry])
    assert column in board.columns([certified])
    cell = board.row(certified, board.columns([certified]))[column]
    assert cell.word == "certified"
    assert cell.note == f"2x {gpu}, driver 1 (image), until {statement.predicate.expires}"


def test_a_certificate_of_a_lock_says_so(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "versions", lambda *_: [])
    small.issue()
    cell = board.row(stacks.read(small.project, TINY, tmp_path), [CPU])[CPU]
    assert " (lock), until " in cell.note


def test_the_days_of_earlier_certificates_end_where_the_next_begins(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small.issue(day=datetime.date(2026, 1, 1))
    old = path.read_bytes()
    small.issue()
    past = [Version("cpu-host", "a" * 40, "2026-01-02", old), Version("another", "b" * 40, "2026-01-02", old + b" ")]
    monkeypatch.setattr(history, "versions", lambda *_: past)
    stack = stacks.read(small.project, TINY, tmp_path)
    cell = board.row(stack, [CPU])[CPU]
    today = certificate.today()
    first = (datetime.date(2026, 1, 2), min(today, datetime.date(2026, 4, 1)))
    assert list(cell.spans) == [first, (today, today + certificate.LIFETIME)]
    assert cell.otherwise == "not built"


def test_what_does_not_hold_was_never_in_force(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "versions", lambda *_: [])
    small.issue()
    small.edit("lock.toml", "1700000000", "1700000001")
    cell = board.row(stacks.read(small.project, TINY, tmp_path), [CPU])[CPU]
    assert (cell.word, list(cell.spans)) == ("does not hold", [])


@pytest.mark.parametrize(
    ("spans", "joined"),
    [
        ([], []),
        ([(1, 4), (2, 3)], [(1, 4)]),
        ([(5, 9), (1, 4)], [(1, 9)]),
        ([(1, 3), (5, 9)], [(1, 3), (5, 9)]),
        ([(1, 9), (1, 9), (9, 12)], [(1, 12)]),
    ],
)
def test_the_same_days_are_as_few_spans_as_possible(
    spans: list[tuple[int, int]], joined: list[tuple[int, int]]
) -> None:
    def dated(pairs: list[tuple[int, int]]) -> list[board.Span]:
        return [(datetime.date(2026, 1, first), datetime.date(2026, 1, last)) for first, last in pairs]

    assert board._joined(dated(spans)) == dated(joined)


def test_the_certificate_that_lasts_longest_is_in_the_cell(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "versions", lambda *_: [])
    today = certificate.today()
    path = small.issue(day=today - datetime.timedelta(days=30))
    path.rename(path.with_name("cpu-0.json"))
    small.issue()
    cell = board.row(stacks.read(small.project, TINY, tmp_path), [CPU])[CPU]
    assert cell.note == f"2 certificates, until {today + certificate.LIFETIME}"
    assert list(cell.spans) == [(today - datetime.timedelta(days=30), today + certificate.LIFETIME)]
