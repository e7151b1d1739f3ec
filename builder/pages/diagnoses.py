"""How often the doctor is right: a table of the benchmark on real reports."""

from __future__ import annotations

from builder.base.project import Project
from builder.pages import cells, evidence, records, suite

SLOW = 3  # steps that are named
LOOKS = {
    "first": "at first look",
    "unseen": "after learning from others",
    "now": "after learning from it",
}


def results(project: Project) -> str:
    """A row for each batch: at the first look, and after what was learnt since."""
    record = evidence.read(project, records.Diagnoses)
    if record is None:
        return suite.NOT_MEASURED
    looks = [(batch, kind, getattr(batch, look)) for batch in record.batches for look, kind in LOOKS.items()]
    rows = [_row(batch.name, batch, kind, score) for batch, kind, score in looks if score is not None]
    table = cells.table(
        ["batch", "reports", "", "mended by the first finding", "by the first three", "names the culprit first",
         "confidently wrong", "alarms"],
        rows,
    )  # fmt: skip
    steps = ", ".join(f"{name.replace('_', ' ')} {seconds * 1000:.0f} ms" for name, seconds in
                      list(record.seconds_per_step.items())[:SLOW])  # fmt: skip
    shipped = record.shipped_kib
    size = "" if shipped is None else f"The doctor and what it knows are {shipped / 1024:.1f} MB. "
    costs = (
        f"The slowest report took {record.slowest_s:.1f} s, all of them {record.memory_mib} MB of memory; the longest "
        f"steps: {steps}. {size}Measured on {record.date} ({cells.escaped(record.machine)}) by "
        f"{cells.code(record.command)}."
    )
    return f"{table}\n{costs}\n"


def _row(name: str, batch: records.Batch, kind: str, score: records.Score) -> list[str]:
    reports = f"{batch.causes} with a culprit, {batch.others} without"
    return [
        name, reports, kind, _percent(score.mends_top1), _percent(score.mends_top3), _percent(score.top1),
        _percent(score.confident_wrong), f"{score.confident_on_negatives} of {batch.others}",
    ]  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
