"""What `python -m benchmarks.fleet` says of a fleet of which a node dies, in the documents."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import evidence, suite
from builder.pages.records import Count, Record, Seconds


class Fleet(Record):
    FILE = "fleet"

    stacks: Count
    nodes: Count
    certificates: Count
    suite_s: Seconds
    kill_s: Seconds
    suites_begun: Count
    suites_ended: Count
    jobs_left: Count
    unit_s: list[Seconds]
    killed_s: Seconds
    wall_s: Seconds
    ideal_s: Seconds
    ratio: Seconds


def loss(project: Project) -> str:
    """The wall time beside that of the best schedule."""
    record = evidence.read(project, Fleet)
    if record is None:
        return suite.NOT_MEASURED
    return (
        f"{record.stacks} stacks with suites of {record.suite_s:.0f} s on {record.nodes} nodes of a real Slurm; one "
        f"was killed {record.kill_s:.0f} s after the first suite began, and did not come back. {record.suites_begun} "
        f"suites began, {record.suites_ended} ended, {record.certificates} certificates are there, in "
        f"{record.wall_s:.0f} s. The best schedule of the same durations takes {record.ideal_s:.0f} s: "
        f"**{record.ratio:.2f} times** the ideal. "
        f"{suite.measured(record)}.\n"
    )
