"""How the pages of `vetted site` score in Lighthouse, in the documents."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Record

Hundredths = Annotated[int, Field(ge=0, le=100)]


class Lighthouse(Record):
    """Scores of the pages of `vetted site`: page -> device -> category."""

    FILE = "lighthouse"

    program: str
    runs: dict[str, Count]
    least: dict[str, Hundredths]
    pages: dict[str, dict[str, dict[str, Hundredths]]]


def scores(project: Project) -> str:
    """A row for each page and device, a column for each category; first the least of each."""
    record = evidence.read(project, Lighthouse)
    if record is None:
        return suite.NOT_MEASURED
    categories = list(record.least)
    least = ", ".join(f"{cells.escaped(name)} **{record.least[name]}**" for name in categories)
    rows = [
        [cells.code(page), device, *(by_category.get(name, cells.DASH) for name in categories)]
        for page, by_device in record.pages.items()
        for device, by_category in by_device.items()
    ]
    runs = ", ".join(f"{count} on a {cells.escaped(device)}" for device, count in record.runs.items())
    head = f"The least: {least}. {suite.measured(record)} with {cells.code(record.program)}; medians of runs ({runs})."
    return f"{head}\n\n{cells.table(['page', 'device', *categories], rows)}"
