"""How long the tutorial of an own script and package takes, in the documents."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Model, Record


class Section(Model):
    """A section of the tutorial: the seconds from its first command to the end of its last."""

    title: str
    seconds: Count


class Newcomer(Record):
    """A run of every command of docs/tutorial/own-run.md, with the certified image there."""

    FILE = "newcomer"

    stack: str
    sections: list[Section]
    seconds: Count


def seconds(project: Project) -> str:
    """A row for each section, and the sum."""
    record = evidence.read(project, Newcomer)
    if record is None:
        return suite.NOT_MEASURED
    rows = [[cells.escaped(section.title), f"{section.seconds} s"] for section in record.sections]
    whole = f"**{record.seconds // 60} min {record.seconds % 60} s** in all. {suite.measured(record)}."
    return f"{whole}\n\n{cells.table(['section', 'time'], rows)}"
