"""The benchmark: a finding counts when what it recommends installs a release that is confirmed to work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import doctor, mended
from doctor.finding import EXPLAINS, SILENT, Finding
from doctor.know.data import Api, Knowledge
from tests.conftest import ROOT

KNOWLEDGE = Knowledge(apis={"trl": Api({}, {"0.14.0": [], "0.15.2": [], "0.16.0": [], "0.17.0rc1": []})})
TRL = [{"package": "trl", "bad": ">=0.16.0", "fixed": "<0.16.0"}]


def finding(**more: Any) -> Finding:
    usual: dict[str, Any] = {
        "rule": "moved-name", "title": "t", "packages": {"trl": "0.16.0"}, "severity": "crash", "confidence": "likely",
        "evidence": [], "remedy": [], "shown": EXPLAINS,
    }  # fmt: skip
    return Finding(**{**usual, **more})


def report(**more: Any) -> dict[str, Any]:
    usual = {"id": "r", "packages": {"trl": "0.16.0"}, "error": "TypeError: x", "culprit": TRL, "culprit_logic": "any"}
    return {**usual, **more}


@pytest.mark.parametrize(
    ("more", "unnamed"),
    [
        ({}, False),  # among the packages
        ({"packages": {}}, True),
        ({"packages": {}, "error": "File site-packages/trl/trainer.py"}, False),
        ({"packages": {"trl-tools": "1"}, "error": None, "culprit": [{**TRL[0], "package": "flash-attn"}]}, True),
        ({"packages": {}, "error": "Flash_Attn is broken", "culprit": [{**TRL[0], "package": "flash-attn"}]}, False),
        ({"packages": {}, "culprit": []}, True),
    ],
)
def test_a_report_may_name_its_culprit_nowhere(more: dict[str, Any], unnamed: bool) -> None:
    assert doctor.Result(report(**more), [], 0.0, [], {}).unnamed is unnamed


def test_the_first_command_is_followed_and_without_one_the_first_remedy() -> None:
    command = "uv pip install --python /opt/venv/bin/python 'trl>=0.14,<0.16' peft"
    assert mended.recommended(finding(commands=["uv pip uninstall x", command])) == {"trl": "<0.16,>=0.14", "peft": "*"}
    words = ["trl>=0.9.2,<0.16.0 and peft==0.15.0, or code that does not ask for it"]
    assert mended.recommended(finding(remedy=words)) == {"trl": ">=0.9.2,<0.16.0", "peft": "==0.15.0"}
    assert mended.recommended(finding(remedy=["install versions of trl that belong together"])) == {}


@pytest.mark.parametrize(
    ("range_", "release"), [("<0.16", "0.15.2"), (">=0.14", "0.16.0"), ("==0.17.0rc1", "0.17.0rc1"), (">=9", "99999")]
)
def test_the_index_gives_the_newest_final_release_of_a_range(range_: str, release: str) -> None:
    assert mended.installs("trl", range_, KNOWLEDGE) == release


@pytest.mark.parametrize(
    ("remedy", "more", "expected"),
    [
        ("trl<0.16.0", {}, True),
        ("trl>=0.14.0", {}, False),  # installs the release that fails
        ("a release of trl that fits", {}, False),  # says nothing
        ("peft<0.15", {}, False),  # moves another package
        ("trl<0.16.0", {"packages": {"trl": "0.15.2"}, "culprit": [{**TRL[0], "bad": "*"}]}, False),  # it is there
        ("trl>=0.14", {"packages": {}, "culprit": [{"package": "trl", "bad": "<0.14", "fixed": ">=0.14"}]}, True),
        # Somebody tried one release: any other outside the bad range is as good.
        ("trl<0.16.0", {"culprit": [{"package": "trl", "bad": ">=0.16.0", "fixed": "==0.14.0"}]}, True),
        ("trl<0.16.0", {"culprit": [{"package": "trl", "bad": ">=0.15.0", "fixed": "==0.14.0"}]}, False),
        ("trl==0.14.0", {"culprit": [{"package": "trl", "bad": "a wheel", "fixed": "==0.14"}]}, True),
        # A wheel that was built for something else: no range tells.
        ("rebuild it", {"culprit": [{"package": "trl", "bad": "another ABI", "fixed": "rebuilt"}]}, True),
        ("trl<0.16.0", {"culprit": [*TRL, {"package": "vllm", "bad": "*", "fixed": "<1"}]}, True),
        ("trl<0.16.0", {"culprit": [*TRL, {"package": "vllm", "fixed": "<1"}], "culprit_logic": "all"}, False),
    ],
)
def test_what_mends(remedy: str, more: dict[str, Any], expected: bool) -> None:
    assert mended.mends(finding(remedy=[remedy]), report(**more), KNOWLEDGE) is expected


def test_a_finding_that_the_error_does_not_mention_has_the_wrong_reason() -> None:
    quiet = finding(remedy=["trl<0.16.0"], shown=SILENT)
    assert not mended.mends(quiet, report(), KNOWLEDGE)
    assert mended.mends(quiet, report(silent=True), KNOWLEDGE)
    assert mended.mends(finding(remedy=["trl<0.16.0"], shown=SILENT, rule="requires-dist"), report(), KNOWLEDGE)


@pytest.mark.parametrize(
    ("findings", "more", "wrong"),
    [
        ([finding(remedy=["trl<0.16.0"])], {}, False),
        ([finding(remedy=["trl>=0.16.0"])], {}, True),
        ([finding(remedy=["trl>=0.16.0"], confidence="possible")], {}, False),
        ([finding(remedy=["set it"], ranges={"trl": [">=0.16.0"]}, setting=True)], {}, False),
        ([finding(remedy=["trl<0.16.0"])], {"culprit": []}, True),
        ([finding(remedy=["set it"], setting=True)], {"culprit": [], "kind": "config"}, False),
        ([], {}, False),
    ],
)
def test_what_is_confidently_wrong(findings: list[Finding], more: dict[str, Any], wrong: bool) -> None:
    of = report(**more)
    mending = [mended.mends(finding, of, KNOWLEDGE) for finding in findings]
    assert doctor.Result(of, findings, 0.1, mending, {}).confident_wrong is wrong


@pytest.mark.parametrize("rule", doctor.PARROTED)
def test_what_the_report_says_itself_mends_nothing_and_is_not_wrong(rule: str) -> None:
    parroted, own = finding(remedy=["trl<0.16.0"], rule=rule), finding(remedy=["trl<0.16.0"])
    for findings, place in (([parroted], 0), ([parroted, own], 2), ([own, parroted], 1)):
        result = doctor.Result(report(), findings, 0.1, [True] * len(findings), {})
        assert (result.mending_place, result.confident_wrong) == (place, False)


def test_the_reports_are_of_one_form_and_every_culprit_has_a_fix() -> None:
    files = sorted((ROOT / "benchmarks" / "cases").glob("*.jsonl"))
    reports = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len({report["id"] for report in reports}) == len({report["url"] for report in reports}) == len(reports) >= 60
    for report in reports:
        assert report["cause"] and report["fix"] and report["url"].startswith("https://github.com/"), report["id"]
        assert report["error"] or report["silent"], report["id"]
        assert all(culprit["bad"] and culprit["fixed"] for culprit in report["culprit"]), report["id"]
        assert bool(report["culprit"]) == (report["culprit_logic"] != "none"), report["id"]


def test_it_prints_the_old_keys_and_the_new(tmp_path: Path) -> None:
    """In a new process: the peak memory of this one includes the tests before."""
    lines = (ROOT / "benchmarks" / "cases" / "batch-1.jsonl").read_text().splitlines()[:4]
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    argv = [sys.executable, "-m", "benchmarks.doctor", "--cases", str(tmp_path / "cases.jsonl")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    old = {"cases", "positives", "negatives", "top1", "top3", "confident_on_negatives", "missed", "alarms", "slowest_s"}
    new = {"mends_top1", "mends_top3", "confident_wrong", "not_mended", "seconds_per_step", "memory_mib",
           "shipped_kib"}  # fmt: skip
    assert old | new <= set(summary)
    assert summary["cases"] == 4 and summary["memory_mib"] < 500 and "read the knowledge" in summary["seconds_per_step"]
    assert 1024 < summary["shipped_kib"] < 10240
