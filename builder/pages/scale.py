"""How the commands grow with the certificates of a project, in the documents."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Bytes, Count, Model, Record, Seconds


class Times(Model):
    """A command: seconds when nothing was kept of earlier judgements, and again, with those of all cores. `memory`: of
    the largest process; what was measured before 2026-11-28 has none."""

    first: Seconds
    first_cpu: Seconds
    again: Seconds
    again_cpu: Seconds
    memory: Bytes | None = None


class Lists(Model):
    """The matrix and the lists of a site: bytes that the largest loads; seconds until a browser has opened some of
    them, and has filtered one."""

    pages: Count
    largest: Bytes
    matrix: Seconds
    all: Seconds
    stack: Seconds
    filter: Seconds


class Site(Times):
    """A whole site; seconds until a browser has found certificates in it."""

    pages: Count
    files: Count
    largest: Bytes
    search: Seconds


class Row(Model):
    """A project with so many certificates."""

    certificates: Count
    stacks: Count
    bytes: Bytes
    list: Times
    show: Times
    verify: Seconds
    verify_cpu: Seconds
    lists: Lists
    site: Site | None


class Attached(Model):
    """An image with so many certificates."""

    certificates: Count
    seconds: Seconds
    cpu: Seconds


class Scale(Record):
    FILE = "scale"

    cores: Count
    rows: list[Row]
    images: list[Attached]


def growth(project: Project) -> str:
    """A row for each size of a project."""
    record = evidence.read(project, Scale)
    if record is None:
        return suite.NOT_MEASURED
    columns = ["certificates", "`list`", "`show`", "`verify`", "`site`", "its memory", "largest page", "matrix opens",
               "list of all", "filter", "search"]  # fmt: skip
    rows = [
        [
            f"{row.certificates}", _times(row.list), _times(row.show), _pair(row.verify, row.verify_cpu),
            _times(row.site) if row.site else cells.DASH, _memory(row.site),
            cells.size(max(row.lists.largest, _largest(row.site))), _seconds(row.lists.matrix),
            _seconds(row.lists.all), _seconds(row.lists.filter),
            _seconds(row.site.search) if row.site else cells.DASH,
        ]
        for row in record.rows
    ]  # fmt: skip
    attached = ", ".join(f"{_pair(each.seconds, each.cpu)} with {each.certificates}" for each in record.images)
    return (
        f"{suite.measured(record)} on {record.cores} cores. The first time, then again; in brackets the seconds of all "
        "cores, which other work on the machine does not change much.\n\n"
        f"{cells.table([cells.Markdown(name) for name in columns], rows)}\n"
        f"`verify` of an image by the certificates that are attached to it: {attached}.\n"
    )


def _largest(site: Site | None) -> int:
    return site.largest if site else 0


def _memory(times: Times | None) -> str:
    return cells.size(times.memory) if times and times.memory else cells.DASH


def _times(times: Times) -> str:
    return f"{_pair(times.first, times.first_cpu)}, {_pair(times.again, times.again_cpu)}"


def _pair(seconds: float, cpu: float) -> str:
    return f"{_seconds(seconds)} ({_seconds(cpu)})"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2f} s"
