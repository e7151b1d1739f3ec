"""No bound without a measurement: docs/evidence/monitor.json against the checks and the faults."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.monitored import faults, healthy
from runtime.monitor.checks import CHECKS, Check
from runtime.monitor.table import TABLE
from tests.conftest import ROOT

EVIDENCE: dict[str, Any] = json.loads((ROOT / "docs/evidence/monitor.json").read_text())


def test_the_bounds_are_those_that_were_measured_against() -> None:
    assert EVIDENCE["checks"] == TABLE


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_bound_lies_beyond_every_healthy_run(check: Check) -> None:
    measured = EVIDENCE["columns"][check.column]
    assert measured["runs"] > 0
    # Advice may be true of a healthy run: a tiny model seldom ends, and rewards may begin to differ late.
    if check.level == "alarm" and not check.recovers:
        assert measured["max"] <= check.at_most


def test_no_healthy_run_raised_an_alarm_or_ended_with_other_bits() -> None:
    assert (EVIDENCE["alarms"], EVIDENCE["unequal"], EVIDENCE["crashed"]) == ([], [], [])
    assert EVIDENCE["runs"] >= 100
    assert EVIDENCE["pairs"] >= 5


@pytest.mark.parametrize("name", faults.FAULTS)
def test_each_fault_was_noticed_within_ten_steps_by_its_own_check(name: str) -> None:
    fault = EVIDENCE["faults"][name]
    assert fault["check"] in faults.FAULTS[name].caught
    assert fault["step"] <= 10


def test_the_cost_is_at_most_one_percent_of_a_step() -> None:
    assert EVIDENCE["cost"]["share"] <= 0.01


def test_every_check_has_a_fault_that_it_notices_or_is_advice() -> None:
    caught = {name for fault in faults.FAULTS.values() for name in fault.caught}
    assert {check.name for check in CHECKS if check.level == "alarm"} <= caught


def test_a_healthy_run_is_the_same_however_many_are_drawn() -> None:
    assert healthy.jobs(7)[5] == healthy.jobs(1, first=5)[0]
