"""The monitor in older releases: what an alarm, a fault and a run that did not train count as."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import monitor_releases as recorder
from builder.base.project import Project
from builder.intent import advisory
from builder.pages import evidence, monitor_releases
from tests.conftest import ROOT, Small

KNOWN = advisory.load_all(Project(ROOT))


def run(*alarms: str, **more: Any) -> dict[str, Any]:
    findings = [{"check": check, "outcome": "alarm", "first": 1, "worst": "1"} for check in alarms]
    return {"name": "it", "signal": True, "findings": findings, "absent": {}, "failure": "", **more}


@pytest.mark.parametrize(("trl", "why"), [("0.21.0", ["VETTED-0007"]), ("1.16.0", [])])
def test_an_alarm_is_explained_by_an_advisory_about_these_versions(trl: str, why: list[str]) -> None:
    versions = {"trl": trl, "transformers": "4.55.0"}
    counted = recorder.healthy_runs([run("sampled-from-policy"), run(), run("sampled-from-policy")], versions, KNOWN)
    assert counted == {
        "runs": 3, "refused": {}, "alarms": [{"check": "sampled-from-policy", "runs": 2, "why": why}],
    }  # fmt: skip


def test_a_run_that_says_nothing_is_not_healthy() -> None:
    results = [
        run(), {"name": "it", "crashed": 1}, {"name": "it", "refused": "no"}, {"name": "it", "stopped": "E: x"},
        run(failure="KeyError"), run("rewards-vary", signal=False), run("loss-has-tokens", moved=False),
    ]  # fmt: skip
    counted = recorder.healthy_runs(results, {}, KNOWN)
    assert (counted["runs"], counted["alarms"]) == (1, [])
    assert counted["refused"] == {
        "the process ended with 1": 1, "no": 1, "E: x": 1, "the monitor failed: KeyError": 1,
        "no group had two different rewards": 1, "no weight changed": 1,
    }  # fmt: skip


def test_a_fault_is_missed_unless_it_cannot_be_seen() -> None:
    blind = run(absent={"rewards": "it computes them in one piece"})
    counted = recorder.injected({
        "advantage-sign": run("advantages-rewards"), "advantage-of-another": blind, "loss-sign": blind,
        "engine-slept": {"name": "it", "refused": "this TRL runs no vLLM"},
        "reward-infinite": run(stopped="RuntimeError: inf"), "not-finite": run("numbers-finite", stopped="Error: x"),
        "no-update": run("rewards-vary"),
    })  # fmt: skip
    assert counted == {
        "noticed": {"advantage-sign": "advantages-rewards", "not-finite": "numbers-finite"},
        "missed": ["loss-sign", "no-update"],
        "others": {
            "advantage-of-another": "not checked: it computes them in one piece",
            "engine-slept": "cannot be injected: this TRL runs no vLLM",
            "reward-infinite": "training stops by itself: RuntimeError: inf",
        },
    }


def row(trl: str, *advisories: str, **more: Any) -> dict[str, Any]:
    return {
        "trl": trl, "date": "2025-08-07", "versions": {"transformers": "4.55.0"}, "runs": 20, "refused": {},
        "alarms": [{"check": "sampled-from-policy", "runs": 2, "why": list(advisories)}],
        "noticed": {"loss-sign": "gradient-direction"}, "missed": [], "others": {"engine-slept": "no vLLM"}, **more,
    }  # fmt: skip


def test_the_documents_say_what_nobody_explains(small: Small) -> None:
    for part in (monitor_releases.summary, monitor_releases.results):
        assert part(small.project) == "Not measured yet.\n"
    recorder._record(small.project, 20, [row("0.21.0"), row("1.9.0", missed=["no-update"])])
    recorder._record(small.project, 20, [row("0.21.0", "VETTED-0007")])
    record = evidence.read(small.project, monitor_releases.MonitorReleases)
    assert record is not None
    assert [each.trl for each in record.rows] == ["0.21.0", "1.9.0"]
    text = monitor_releases.results(small.project)
    assert "`sampled-from-policy` (VETTED-0007)" in text
    assert "`sampled-from-policy` (**no advisory**)" in text
    assert "`no-update`" in text
    assert "- no vLLM (2 times)" in text
    summary = monitor_releases.summary(small.project)
    assert "40 healthy runs. Checks that raised alarms in them: 2; of these, **1** with an advisory" in summary
    assert "**2 of 3** injected faults" in summary
