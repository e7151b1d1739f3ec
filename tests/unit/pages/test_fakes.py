"""Machines that do not exist, in the documents: what is recorded stays, and says of which suite it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builder.base.machine import Hardware
from builder.certify import certificate
from builder.certify.certificate import ProbeResult, Resource
from builder.pages import evidence, fakes
from tests.conftest import TINY, Small
from tests.gpu.__main__ import record, row, tried
from tests.gpu.machines import Fake, Said

FAKE = Fake("H200")
SAID = Said(
    "trl1.16-cu130", "it fits", {"driver": ["compute", "utility"], "visible": "0"}, [("stop", "no | kernels")], "1x it"
)
NONE = Said(None, "no CUDA stack fits", {}, [("stop", "no GPU is visible")], "no GPU to certify on")


def attempt() -> dict[str, Any]:
    results = [
        ProbeResult(name="imports", outcome="passed"),
        ProbeResult(name="plain", outcome="failed", reason="no GPU\nat line 7"),
        ProbeResult(name="crashed", outcome="crashed", reason="no GPU"),
        ProbeResult(name="pair", outcome="not-run", reason="needs 2"),
    ]
    statement = certificate.statement(
        subject=Resource(name="it", digest=certificate.bare("sha256:" + "1" * 64)), lock="sha256:" + "2" * 64,
        suite="sha256:" + "3" * 64, hardware=Hardware("CPU", 2), engine={"name": "host"}, python="3.11.2",
        probes=results,
    )  # fmt: skip
    return tried(statement, whole=False)


def recorded(small: Small, rows: list[dict[str, Any]], attempts: dict[str, Any]) -> Path:
    record(small.project, small.lock, rows, attempts, small.scratch())
    return evidence.path(small.project, fakes.FakeGpus.FILE)


def test_every_answer_has_a_cell_and_equal_reasons_are_one(small: Small) -> None:
    assert fakes.fakes(small.project) == "Not measured yet.\n"
    recorded(small, [row(FAKE, SAID), row(Fake("none", gpus=(), driver=""), NONE)], {"H200": attempt()})
    *_, first, second = fakes.fakes(small.project).splitlines()
    assert first.split(" | ")[:3] == [
        "| H200<br>580.95.05", "`trl1.16-cu130`", "the driver's compute and utility; `CUDA_VISIBLE_DEVICES=0`"
    ]  # fmt: skip
    assert "stop: no &#124; kernels" in first
    suite = "some probes alone:<br>passed: `imports`<br>2 red: no GPU<br>1 not run: needs 2"
    assert first.endswith(f" | {suite} | none for 1x it |")
    assert (
        second == "| none | refuses: no CUDA stack fits | no GPU | stop: no GPU is visible | – | no GPU to certify on |"
    )


def test_a_record_without_the_suite_keeps_what_the_suite_showed(small: Small) -> None:
    path = recorded(small, [row(FAKE, SAID)], {"H200": attempt()})
    before = json.loads(path.read_text())["attempts"]
    recorded(small, [row(FAKE, NONE)], {})
    after = json.loads(path.read_text())
    assert after["attempts"] == before and after["machines"][0]["chosen"] is None
    assert before["command"] == "python -m tests.gpu --suite --record"
    assert "an earlier" not in fakes.fakes(small.project)
    (small.project.smoke / "new.py").touch()
    assert "an earlier suite." in fakes.fakes(small.project)
    small.edit("requirements.txt", "tiny-lib==1.0 ", "tiny-lib==1.1 ")
    assert "an earlier suite, an earlier lock." in fakes.fakes(small.project)


def test_before_the_suite_ran_it_is_said(small: Small) -> None:
    recorded(small, [row(FAKE, SAID)], {})
    shown = fakes.fakes(small.project)
    assert f"those of `{TINY}`" in shown and "The suite has not run on them yet." in shown
    assert shown.splitlines()[-1].endswith(" | – | – |")


def test_of_a_long_reason_a_cell_has_the_beginning(small: Small) -> None:
    """A probe with rows may have many failures."""
    rows = "; ".join(f"row {number}: no GPU {number} can be used" for number in range(1, 45))
    recorded(small, [row(FAKE, SAID)], {"H200": {**attempt(), "red": {f"rows_failed is 44 rows: {rows}": ["rows"]}}})
    shown = fakes.fakes(small.project)
    assert "1 red: rows_failed is 44 rows: row 1: no GPU 1 can be used;" in shown and " …" in shown
    assert "row 10:" not in shown
