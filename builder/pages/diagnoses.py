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


def summary(project: Project) -> str:
    """The range over all batches at the first look, and what a report costs."""
    record = evidence.read(project, records.Diagnoses)
    looks = [batch.first for batch in record.batches if batch.first is not None] if record else []
    if record is None or not looks:
        return suite.NOT_MEASURED
    steps = ", ".join(f"{name.replace('_', ' ')} {seconds * 1000:.0f} ms" for name, seconds in
                      list(record.seconds_per_step.items())[:SLOW])  # fmt: skip
    fixed, wrong = (_range([getattr(look, name) for look in looks]) for name in ("mends_top1", "confident_wrong"))
    shipped = record.shipped_kib
    size = "" if shipped is None else f"The doctor and what it knows are {shipped / 1024:.1f} MiB. "
    number = f"{len(looks)} batch{'es' * (len(looks) > 1)}"
    return (
        f"At first look, the first finding fixed {fixed} of the reports of a batch, and {wrong} were confidently wrong "
        f"({number}). The slowest report took {record.slowest_s:.1f} s, all of them {record.memory_mib} MiB of memory; "
        f"the longest steps: {cells.escaped(steps)}. {size}Measured on {cells.escaped(record.date)} "
        f"({cells.escaped(record.machine)}) by {cells.code(record.command)}.\n"
    )


def results(project: Project) -> str:
    """A row for each batch: at the first look, and after what was learnt since."""
    record = evidence.read(project, records.Diagnoses)
    if record is None:
        return suite.NOT_MEASURED
    looks = [(batch, kind, getattr(batch, look)) for batch in record.batches for look, kind in LOOKS.items()]
    rows = [_row(batch.name, batch, kind, score) for batch, kind, score in looks if score is not None]
    return cells.table(
        ["batch", "reports", "", "fixed by the first finding", "by the first three", "names the culprit first",
         "confidently wrong", "alarms"],
        rows,
    )  # fmt: skip


def _row(name: str, batch: records.Batch, kind: str, score: records.Score) -> list[str]:
    nowhere = f" (nowhere named in {batch.unnamed})" if batch.unnamed else ""
    reports = f"{batch.causes} with a culprit{nowhere}, {batch.others} without"
    return [
        name, reports, kind, _percent(score.mends_top1), _percent(score.mends_top3), _percent(score.top1),
        _percent(score.confident_wrong), f"{score.confident_on_negatives} of {batch.others}",
    ]  # fmt: skip


def _range(shares: list[float]) -> str:
    low, high = _percent(min(shares)), _percent(max(shares))
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"
