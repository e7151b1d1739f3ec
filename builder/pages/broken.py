"""Broken environments that were good after what the doctor printed was typed, in the documents."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Model, Seconds, SuiteRecord


class Row(Model):
    """An environment: what the doctor found first, what it printed, and whether its question failed and passes."""

    name: str
    rule: str
    confidence: str
    expected: str  # the advisory of a control; "" where none is expected
    commands: list[str]
    before: str
    after: str
    output: str  # by a command, or by the question after it, where that failed
    seconds: Seconds

    @property
    def fixed(self) -> bool:
        """Did it fail, and does it pass? For a control, for the reason that is known."""
        known = self.expected in ("", self.rule)
        return known and self.before == "fails" and self.after == "passes"


class Broken(SuiteRecord):
    FILE = "broken"

    rows: list[Row]


def results(project: Project) -> str:
    """A row for each environment."""
    record = evidence.read(project, Broken)
    if record is None:
        return suite.NOT_MEASURED
    rows = [
        [cells.code(row.name), row.rule or cells.DASH,
         cells.joined((cells.code(_short(command)) for command in row.commands), " ") or cells.DASH,
         "yes" if row.fixed else cells.Markdown("**no**")]
        for row in record.rows
    ]  # fmt: skip
    table = cells.table(["environment", "the first finding", "what it prints", "good after it"], rows)
    fixed = sum(row.fixed for row in record.rows)
    older = suite.older_suite(project, record.suite)
    return f"**{fixed} of {len(record.rows)}** are good afterwards. {suite.measured(record)}{older}.\n\n{table}"


def _short(command: str) -> str:
    """A command without the path of the environment."""
    return command.replace(" --python ENV/bin/python3", "").replace(" --python ENV/bin/python", "")
