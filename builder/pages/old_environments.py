"""Older environments in which the suite ran, in the documents: what was red there, and which advisory says why."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Seconds, SuiteRecord


class Red(Model):
    """A probe that was red, and the advisories that name it for the versions that are installed."""

    probe: str
    outcome: str
    reason: str
    advisories: list[str]


class Row(Model):
    """An environment: a release of TRL with everything else as it was on a day, or the twin of a control."""

    name: str
    date: str  # "" for a twin
    versions: dict[str, str]
    passed: Count
    not_run: Count
    red: list[Red]
    seconds: Seconds


class OldEnvironments(SuiteRecord):
    FILE = "old-environments"

    rows: list[Row]


def summary(project: Project) -> str:
    """How many red probes have an advisory."""
    record = evidence.read(project, OldEnvironments)
    if record is None:
        return suite.NOT_MEASURED
    reds = [red for row in record.rows for red in row.red]
    explained = sum(bool(red.advisories) for red in reds)
    return (
        f"**{explained} of {len(reds)}** red probes in {len(record.rows)} environments have an advisory for those "
        f"versions. {suite.source(project, record)}\n"
    )


def results(project: Project) -> str:
    """A row for each environment."""
    record = evidence.read(project, OldEnvironments)
    if record is None:
        return suite.NOT_MEASURED
    rows = [
        [
            row.name, row.versions.get("transformers", ""), row.date or cells.DASH, row.passed, row.not_run,
            cells.joined(map(_red, row.red), ", ") or cells.DASH,
        ]
        for row in record.rows
    ]  # fmt: skip
    return cells.table(["environment", "Transformers", "as of", "passed", "not run", "red, and why"], rows)


def _red(red: Red) -> cells.Markdown:
    why = ", ".join(red.advisories) or "**no advisory**"
    return cells.Markdown(f"{cells.code(red.probe)} ({why})")
