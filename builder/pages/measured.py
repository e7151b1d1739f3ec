"""What `vetted doctor --measure` says of the controls and of their twins, in the documents."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Seconds, SuiteRecord


class Row(Model):
    """A control. `others` and `red_on_twin`: further findings with a red probe, by rule, and what they say."""

    control: str
    named: bool
    first: str
    advisories: list[str]
    others: dict[str, str]
    false: list[str]
    red_on_twin: dict[str, str]
    seconds: Seconds


class Measured(SuiteRecord):
    FILE = "measured"

    controls: Count
    named: Count
    false: Count
    rows: list[Row]


def summary(project: Project) -> str:
    """How many controls were named, in a sentence."""
    record = evidence.read(project, Measured)
    if record is None:
        return suite.NOT_MEASURED
    older = suite.older_suite(project, record.suite)
    return (
        f"**{record.named} of {record.controls}** named, **{record.false}** false on the twins. "
        f"{suite.measured(record)}{older}.\n"
    )


def results(project: Project) -> str:
    """A row for each control."""
    record = evidence.read(project, Measured)
    if record is None:
        return suite.NOT_MEASURED
    rows = [
        [cells.code(row.control), cells.joined(row.advisories, ", ") or cells.DASH,
         "yes" if row.named else cells.Markdown("**no**"), cells.joined(row.false, ", ") or cells.DASH,
         f"{row.seconds:.0f} s"]
        for row in record.rows
    ]  # fmt: skip
    return cells.table(["control", "its advisory", "named", "false on the twin", "time"], rows)
