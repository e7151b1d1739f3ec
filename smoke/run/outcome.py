"""The outcome of a probe, in one word, and the reason, in one sentence."""

from __future__ import annotations

import math
import signal
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from smoke.probe import Bound, Probe, Reading
from smoke.run.job import RankReport

PASSED, FAILED, CRASHED, TIMEOUT, OOM, NOT_RUN = "passed", "failed", "crashed", "timeout", "oom", "not-run"

_DETAIL = 400  # characters of a reading's detail in a reason; the log has all of it


@dataclass(frozen=True)
class Ending:
    """How the process of a probe ended.

    `status` is its exit status, negative for a signal. `stopped` is why the runner killed it, as an outcome and a
    reason. `oom_killed` says that the kernel's OOM killer acted while it ran. `rank` is the rank, of several, whose
    failure ended the run.
    """

    status: int
    stopped: tuple[str, str] | None = None
    oom_killed: bool = False
    rank: int | None = None


def judge(ending: Ending, report: RankReport, readings: Mapping[str, Reading], probe: Probe) -> tuple[str, str]:
    """The outcome and the reason (empty when passed).

    `report` is that of the rank that ended the run, `readings` are those of rank 0, which count.
    """
    if ending.stopped:
        return ending.stopped
    who = "" if ending.rank is None else f"rank {ending.rank}: "
    if ending.status < 0:
        if ending.status == -signal.SIGKILL and ending.oom_killed:
            return OOM, f"{who}killed by the kernel's OOM killer"
        return CRASHED, who + ended(ending.status)
    if report.not_applicable is not None:
        if readings:
            return FAILED, f"{who}not applicable, reported after its first reading: {report.not_applicable}"
        if report.not_applicable not in {skip.reason for skip in probe.skips}:
            return FAILED, f"{who}not applicable, for a reason that the probe does not list: {report.not_applicable}"
        return NOT_RUN, report.not_applicable
    if report.failure is not None:
        return FAILED, who + report.failure
    if ending.status > 0 or not report.done:
        return FAILED, f"{who}{ended(ending.status)} without a result"
    wrong = [*_broken(readings, probe.bounds), *_unknown(readings, probe.bounds)]
    return (FAILED, "; ".join(wrong)) if wrong else (PASSED, "")


def _broken(readings: Mapping[str, Reading], bounds: Iterable[Bound]) -> Iterable[str]:
    for bound in bounds:
        reading = readings.get(bound.name)
        if reading is None:
            yield f"{bound.name} was not measured"
        elif not bound.holds(reading.value):
            unit = f" {bound.unit}" if bound.unit else ""
            detail = f": {textwrap.shorten(reading.detail, _DETAIL, placeholder=' ...')}" if reading.detail else ""
            yield f"{bound.name} is {reading.value:g}{unit}, must be {bound}{detail}"


def _unknown(readings: Mapping[str, Reading], bounds: Iterable[Bound]) -> Iterable[str]:
    names = {bound.name for bound in bounds}
    for name in readings:
        if name not in names:
            yield f"{name} was measured, but has no bound"


def measurements(readings: Mapping[str, Reading], bounds: Iterable[Bound]) -> list[dict[str, Any]]:
    """The measurements with their bounds, as JSON. It has no NaN: values not finite are "nan", "inf" or "-inf"."""
    return [
        {
            "name": bound.name,
            "value": value if math.isfinite(value) else str(value),
            "unit": bound.unit,
            "bound": bound.limit(),
            "why": bound.why,
            "ok": bound.holds(value),
            "headline": bound.headline,
        }
        for bound in bounds
        if bound.name in readings
        for value in (readings[bound.name].value,)
    ]


def ended(status: int) -> str:
    """Describe how a process ended. `status` is its exit status, negative for a signal."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-status}"
