"""The run monitor in older releases of TRL, in the documents: its alarms there, and the faults that it noticed."""

from __future__ import annotations

from collections import Counter

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Record


class Alarm(Model):
    """A check that raised an alarm in healthy runs, and its advisories about the versions that are installed."""

    check: str
    runs: Count
    why: list[str]


class Row(Model):
    """A release of TRL, with everything else as it was on a day."""

    trl: str
    date: str
    versions: dict[str, str]
    runs: Count
    refused: dict[str, Count]  # runs that did not train or had nothing to learn from, by the reason
    alarms: list[Alarm]
    noticed: dict[str, str]  # injected faults, and the check that noticed each
    missed: list[str]
    others: dict[str, str]  # faults that could not be noticed, and why


class MonitorReleases(Record):
    FILE = "monitor-releases"

    runtime: str
    rows: list[Row]


def summary(project: Project) -> str:
    """All releases in two sentences."""
    record = evidence.read(project, MonitorReleases)
    if record is None:
        return suite.NOT_MEASURED
    runs = sum(row.runs for row in record.rows)
    alarms = [alarm for row in record.rows for alarm in row.alarms]
    explained = sum(bool(alarm.why) for alarm in alarms)
    noticed = sum(len(row.noticed) for row in record.rows)
    visible = noticed + sum(len(row.missed) for row in record.rows)
    return (
        f"The monitor ran in {len(record.rows)} releases of TRL, from {record.rows[0].trl} to {record.rows[-1].trl}: "
        f"{runs} healthy runs. Checks that raised alarms in them: {len(alarms)}; of these, **{explained}** with an "
        f"advisory about those versions, so the release has the defect. **{noticed} of {visible}** "
        f"injected faults were noticed; others do not exist there, or the monitor says that it cannot see them. "
        f"{suite.measured(record)}.\n"
    )


def results(project: Project) -> str:
    """A row for each release, and below it why some faults could not be noticed."""
    record = evidence.read(project, MonitorReleases)
    if record is None:
        return suite.NOT_MEASURED
    rows = [
        [
            row.trl, row.versions.get("transformers", ""), row.date, row.runs,
            cells.joined(map(_alarm, row.alarms), ", ") or cells.DASH,
            f"{len(row.noticed)} of {len(row.noticed) + len(row.missed)}",
            cells.joined(map(cells.code, row.missed), ", ") or cells.DASH,
            len(row.others),
        ]
        for row in record.rows
    ]  # fmt: skip
    head = ["TRL", "Transformers", "as of", "healthy runs", "alarms, and why", "noticed", "missed", "not visible"]
    reasons = Counter(why for row in record.rows for why in row.others.values())
    listed = "\n".join(f"- {cells.escaped(why)} ({count} times)" for why, count in reasons.most_common())
    return f"{cells.table(head, rows)}\nWhy some faults are not visible there:\n\n{listed}\n"


def _alarm(alarm: Alarm) -> cells.Markdown:
    why = ", ".join(alarm.why) or "**no advisory**"
    return cells.Markdown(f"{cells.code(alarm.check)} ({why})")
