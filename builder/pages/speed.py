"""How long preflight's checks of a GPU take, in the documents."""

from __future__ import annotations

from builder.base import sources
from builder.base.project import Project
from builder.pages import cells, evidence, suite
from builder.pages.records import Count, Record, Seconds


class Preflight(Record):
    """Seconds of new processes. `asked_s`: of `median_s`, what is asked of NVML; `imports_s` comes before both."""

    FILE = "preflight"

    runtime: str
    stack: str
    gpu: str
    runs: Count
    limit_s: Seconds
    median_s: Seconds
    slowest_s: Seconds
    asked_s: Seconds
    imports_s: Seconds


def preflight(project: Project) -> str:
    """One sentence, and where it is from."""
    record = evidence.read(project, Preflight)
    if record is None:
        return suite.NOT_MEASURED
    older = "" if record.runtime == sources.digest(project.runtime) else ", an earlier runtime"
    return (
        f"All checks of preflight together take **{_ms(record.median_s)}** in the image of {cells.code(record.stack)} "
        f"(median of {record.runs} new processes; the slowest {_ms(record.slowest_s)}, the limit "
        f"{_ms(record.limit_s)}), after {_ms(record.imports_s)} in which Python imports them. The GPU, one "
        f"{cells.escaped(record.gpu)}, is not there: NVML is a stub that took {_ms(record.asked_s)} of it, and a real "
        f"one may take longer. {suite.measured(record)}; runtime {cells.short(record.runtime)}{older}.\n"
    )


def _ms(seconds: float) -> str:
    return f"{cells.number(1000 * seconds)} ms"
