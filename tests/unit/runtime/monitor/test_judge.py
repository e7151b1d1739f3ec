"""Numbers of steps against the bounds of the checks."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

from runtime.monitor import judge
from runtime.monitor.checks import CHECKS, Check
from runtime.monitor.table import TABLE
from tests.conftest import ROOT

BY_COLUMN = {check.column: check for check in CHECKS}


def test_a_number_within_its_bound_is_nothing() -> None:
    assert judge.breaches({"step": 3, **{check.column: check.at_most for check in CHECKS}}) == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_says_what_is_wrong(check: Check) -> None:
    (breach,) = judge.breaches({"step": 7, check.column: check.at_most + 1})
    assert breach.check is check
    assert str(breach).startswith("step 7: ")
    assert "{" not in str(breach)


@pytest.mark.parametrize("value", ["nan", "inf", math.nan])
def test_what_is_no_number_breaks_every_bound(value: object) -> None:
    assert [breach.check.column for breach in judge.breaches({"step": 1, "kl_start": value})] == ["kl_start"]


@pytest.mark.parametrize("value", [None, "text", True, [1.0]])
def test_what_was_not_measured_is_not_judged(value: object) -> None:
    assert judge.breaches({"step": 1, "kl_start": value}) == []


def test_a_run_is_judged_over_all_its_steps() -> None:
    rows = [{"step": step, "gradient_angle": 0.5 if step == 4 else 0.0, "endless": 5.0} for step in range(1, 6)]
    results = {result.check.name: result for result in judge.results(rows, {"vllm": "no vLLM"})}
    direction = results["gradient-direction"]
    assert (direction.outcome, direction.worst, direction.first, direction.breaches, direction.steps) == (
        "alarm", 0.5, 4, 1, 5,
    )  # fmt: skip
    assert results["completions-end"].outcome == "advice"
    assert (results["weights-synced"].outcome, results["weights-synced"].reason) == ("not-run", "no vLLM")
    assert "nothing to judge" in results["kl-moves"].reason
    assert judge.verdict(results.values()) == "FAILED"
    assert judge.verdict([results["completions-end"]]) == "WARNED"
    assert judge.verdict([results["weights-synced"]]) == "PASSED"


RECOVERING = [check for check in CHECKS if check.recovers]


@pytest.mark.parametrize("check", RECOVERING, ids=lambda check: check.name)
def test_an_alarm_that_is_over_at_the_end_of_a_run_is_advice(check: Check) -> None:
    def outcome(*values: tuple[int, float | None]) -> str:
        rows = [{"step": step, "rank": rank, check.column: value} for step, (rank, value) in enumerate(values, 1)]
        return next(result.outcome for result in judge.results(rows, {}) if result.check is check)

    within, beyond = check.at_most, check.at_most + 1
    assert outcome((0, within)) == "passed"
    assert outcome((0, beyond)) == "alarm"
    assert outcome((0, beyond), (0, within)) == "advice"
    assert outcome((0, beyond), (0, None)) == "alarm"  # a step without a number says nothing
    assert outcome((0, within), (0, beyond)) == "alarm"
    assert outcome((0, beyond), (1, within)) == "alarm"  # another rank
    assert outcome((1, within), (0, beyond), (0, within)) == "advice"


def test_a_row_that_is_odd_is_judged_and_raises_nothing() -> None:
    rows: list[dict[str, Any]] = [
        {"step": 1, "signal_never": 9},
        {"step": 2, "rank": 0, "signal_never": 0},
        {"step": 3, "rank": [0], "signal_never": 0},
    ]
    assert judge.verdict(judge.results(rows, {})) == "WARNED"
    assert judge.number(10**400) is None


def test_what_was_trained_wrongly_stays_an_alarm() -> None:
    assert {check.name for check in RECOVERING} == {"rewards-vary", "loss-has-tokens"}
    rows = [{"step": 1, "gradient_angle": 1.0}, {"step": 2, "gradient_angle": 0.0}]
    assert judge.verdict(judge.results(rows, {})) == "FAILED"


def test_the_table_is_a_literal_whose_names_columns_and_advisories_exist() -> None:
    assert len({row["name"] for row in TABLE}) == len({row["column"] for row in TABLE}) == len(TABLE)
    for check in CHECKS:
        assert re.fullmatch("[a-z-]+", check.name)
        assert check.level in ("alarm", "advice")
        assert check.asks.endswith("?")
        for advisory in check.advisories:
            assert Path(ROOT, "advisories", f"{advisory}.toml").is_file()
