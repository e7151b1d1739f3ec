"""Golden trajectories in the documents: how often the test alarms without a change, and the verdicts on pairs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from builder.base.project import Project
from builder.intent import stack
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Share, SuiteRecord
from builder.trajectory import record as trajectory
from builder.trajectory.verdict import NAMES


class Pair(Model):
    """A verdict. `p` is None where all bits were the same, or seeds failed."""

    sentence: str
    good: bool
    p: Share | None


class Trajectories(SuiteRecord):
    """`noticed`: by number, the smallest difference that a comparison of `size` seeds notices, and its mean value."""

    FILE = "trajectories"

    stack: str
    seeds: Count
    steps: Count
    size: Count
    pairs: Count
    disjoint: bool
    alarms: Count
    smallest_p: Share
    noticed: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    verdicts: list[Pair]


def alarms(project: Project) -> str:
    """The false alarms, and what would have been noticed."""
    record = evidence.read(project, Trajectories)
    if record is None:
        return suite.NOT_MEASURED
    drawn = "" if record.disjoint else f", drawn at random from {record.seeds}"
    rows = [
        [cells.escaped(NAMES.get(name, name)), f"{mean:.3g}", f"{difference:.2g}"]
        for name, (difference, mean) in record.noticed.items()
    ]
    return (
        f"**{record.alarms} alarms** in {record.pairs} pairs of groups of {record.size} seeds of "
        f"{cells.code(record.stack)}{drawn}; the smallest p is {record.smallest_p:.2g}. "
        f"{suite.source(project, record)}\n\n"
        f"{cells.table(['number', 'its mean', 'a difference over ten steps that is noticed'], rows)}"
    )


def verdicts(project: Project) -> str:
    """The records of the project's stacks, and the verdict on every pair that was recorded."""
    records = [each for name in stack.shipped(project) for each in trajectory.of_stack(project, name)]
    if not records:
        return suite.NOT_MEASURED
    rows = [
        [
            cells.code(each.stack), each.place.device, cells.escaped(each.place.hardware), each.place.engine,
            len(each.seeds), each.date,
        ]
        for each in records
    ]  # fmt: skip
    listed = cells.table(["stack", "device", "hardware", "engine", "seeds", "date"], rows)
    record = evidence.read(project, Trajectories)
    if record is None or not record.verdicts:
        return f"{listed}\nNo pair is compared yet.\n"
    judged = [
        [cells.Markdown("the same" if pair.good else "**changes**"), cells.escaped(pair.sentence)]
        for pair in record.verdicts
    ]  # fmt: skip
    return f"{listed}\n{cells.table(['training', 'verdict'], judged)}"
