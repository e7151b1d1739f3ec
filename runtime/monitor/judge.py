"""The judgement of a run from its rows: one for each step and rank, with the numbers of `checks.CHECKS`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .checks import CHECKS, Check

PASSED, ADVICE, ALARM, NOT_RUN = "passed", "advice", "alarm", "not-run"


@dataclass(frozen=True)
class Breach:
    """A number of a step that is beyond its bound."""

    check: Check
    step: int
    value: float

    def __str__(self) -> str:
        return f"step {self.step}: {self.check.sentence(self.value)}"


@dataclass(frozen=True)
class Result:
    """What came of a check over a run. `reason`: why it did not apply. `first`: the step of its first breach."""

    check: Check
    outcome: str
    steps: int = 0
    worst: float | None = None
    first: int | None = None
    breaches: int = 0
    reason: str = ""


def number(value: Any) -> float | None:
    """A number of a row; one that is not finite was written as a string."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def rank(row: Mapping[str, Any]) -> int:
    """The rank that wrote a row."""
    value = row.get("rank")
    return value if isinstance(value, int) else 0


def beyond(check: Check, value: float) -> bool:
    """Whether the value breaks the bound. One that is no number does."""
    return math.isnan(value) or value > check.at_most


def breaches(row: Mapping[str, Any]) -> list[Breach]:
    """What the row of a step breaks."""
    values = ((check, number(row.get(check.column))) for check in CHECKS)
    return [
        Breach(check, int(row["step"]), value) for check, value in values if value is not None and beyond(check, value)
    ]


def results(rows: Iterable[Mapping[str, Any]], absent: Mapping[str, str]) -> list[Result]:
    """The result of each check over the rows of a run, those of all ranks. `absent`: need -> why the run lacks it."""
    table = list(rows)
    judged = []
    for check in CHECKS:
        values = [(int(row["step"]), number(row.get(check.column))) for row in table]
        read = [(step, value) for step, value in values if value is not None]
        if not read:
            reason = absent.get(check.needs) or "nothing to judge in the steps that ran"
            judged.append(Result(check, NOT_RUN, reason=reason))
            continue
        broken = [step for step, value in read if beyond(check, value)]
        numbers = [value for _, value in read]
        worst = math.nan if any(map(math.isnan, numbers)) else max(numbers)
        outcome = _level(check, table) if broken else PASSED
        judged.append(Result(check, outcome, len(read), worst, min(broken, default=None), len(broken)))
    return judged


def _level(check: Check, rows: Iterable[Mapping[str, Any]]) -> str:
    """The level of a check that was broken, by how the run ended on every rank."""
    values = ((rank(row), number(row.get(check.column))) for row in rows)
    last = {place: value for place, value in values if value is not None}
    recovered = check.recovers and not any(beyond(check, value) for value in last.values())
    return ADVICE if recovered else check.level


def verdict(judged: Iterable[Result]) -> str:
    """PASSED, WARNED or FAILED, as in-toto's test-result says it."""
    outcomes = {result.outcome for result in judged}
    return "FAILED" if ALARM in outcomes else "WARNED" if ADVICE in outcomes else "PASSED"
