"""How the run monitor was measured, in the documents: healthy runs, injected faults, and its cost."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field, model_validator

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Record, Seconds, Share

Level = Annotated[float, Field(ge=0)]


class Check(Model):
    """A check of the monitor and its bound."""

    name: str
    column: str
    asks: str
    level: str
    at_most: Level


class Distribution(Model):
    """Of the largest value of each healthy run."""

    runs: Count
    median: Level = 0.0
    max: Level = 0.0


class Fault(Model):
    """An injected fault; `check` and `step`: what noticed it, and when."""

    why: str
    check: str | None
    step: Count | None


class Cost(Model):
    share: Share
    step_seconds: Seconds


class Monitor(Record):
    FILE = "monitor"

    checks: list[Check]
    stack: str
    runs: Count
    idle: dict[str, str]  # runs that had nothing to learn from, and what the monitor said
    pairs: Count
    runtimes: dict[str, Count]
    alarms: list[str]
    advice: Count
    unequal: list[str]
    columns: dict[str, Distribution]
    faults: dict[str, Fault]
    cost: Cost

    @model_validator(mode="after")
    def _measured(self) -> Monitor:
        if missing := {check.column for check in self.checks} - self.columns.keys():
            raise ValueError(f"nothing was measured of {', '.join(sorted(missing))}")
        return self


def summary(project: Project) -> str:
    """The numbers in a few sentences."""
    record = evidence.read(project, Monitor)
    if record is None:
        return suite.NOT_MEASURED
    noticed = sum(fault.check is not None for fault in record.faults.values())
    share = math.ceil(record.cost.share * 1000) / 10
    warned = sum("rewards-vary (alarm" in said for said in record.idle.values())
    idle = f"{len(record.idle)} more had nothing to learn from: {warned} raised the alarm about their rewards. "
    equal = record.pairs - len(record.unequal)
    return (
        f"**{len(record.alarms)} of {record.runs}** healthy runs raised an alarm; {record.advice} got advice. "
        f"{idle if record.idle else ''}"
        f"**{noticed} of {len(record.faults)}** injected faults were noticed. Of {record.pairs} runs repeated "
        f"without the monitor, {equal} ended with the same bits of weights, losses and random states. The monitor "
        f"took {share:g} % of a step that takes {record.cost.step_seconds:g} s of processor time. "
        f"{suite.measured(record)}.\n"
    )


def checks(project: Project) -> str:
    """Every check with its bound, and the largest value of healthy runs."""
    record = evidence.read(project, Monitor)
    if record is None:
        return suite.NOT_MEASURED
    rows: list[list[object]] = []
    for check in record.checks:
        seen = record.columns[check.column]
        worst = f"{seen.max:.2g} (median {seen.median:.2g})" if seen.runs else "not measured"
        rows.append([cells.code(check.name), check.asks, check.level, f"{check.at_most:g}", worst, seen.runs])
    runtimes = ", ".join(f"{cells.escaped(name)} ({count} runs)" for name, count in record.runtimes.items())
    table = cells.table(["check", "asks", "level", "bound", "worst of healthy runs", "runs"], rows)
    return (
        f"{table}\nHealthy runs of ten steps of {cells.code(record.stack)}. Results are of the runtimes {runtimes}.\n"
    )


def faults(project: Project) -> str:
    """Every injected fault, and the check that noticed it."""
    record = evidence.read(project, Monitor)
    if record is None:
        return suite.NOT_MEASURED
    rows: list[list[object]] = [
        [f"{name}: {fault.why}", cells.code(fault.check) if fault.check else cells.Markdown("**not noticed**"),
         "" if fault.step is None else fault.step]
        for name, fault in record.faults.items()
    ]  # fmt: skip
    return cells.table(["injected fault", "noticed by", "at step"], rows)
