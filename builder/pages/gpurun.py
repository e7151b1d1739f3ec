"""A run of the suite on a GPU that earned no certificate: what passed, what did not and why, in the documents."""

from __future__ import annotations

import textwrap

from builder.base.project import Project
from builder.certify.catalogue import Limit
from builder.certify.certificate import ProbeResult, Statement
from builder.pages import cells, evidence, suite
from builder.pages.cells import DASH, Markdown
from builder.pages.records import Count, Model, Seconds, SuiteRecord

MAIN = ("torch", "transformers", "trl", "peft", "deepspeed", "bitsandbytes", "triton")
REASON = 160  # characters of a reason in a cell


class Number(Model):
    """The number that matters of a probe."""

    name: str
    value: float
    unit: str
    bound: Limit | None


class Outcome(Model):
    """How a probe ended. `reason`: of one that did not pass."""

    probe: str
    outcome: str
    reason: str
    headline: Number | None
    seconds: Seconds


class GpuRun(SuiteRecord):
    """A run of the suite on a GPU: of which versions, on which system. `machine` names the GPU and its driver."""

    FILE = "gpu-run"

    stack: str
    versions: dict[str, str]
    distributions: Count
    system: str
    python: str
    probes: list[Outcome]


def outcomes(statement: Statement) -> list[Outcome]:
    """How the probes of a statement ended."""
    return [
        Outcome(
            probe=probe.name,
            outcome=probe.outcome,
            reason=(probe.reason or "").partition("\n")[0],
            headline=_headline(probe),
            seconds=probe.seconds,
        )
        for probe in statement.predicate.probes
    ]


def _headline(probe: ProbeResult) -> Number | None:
    number = probe.headline
    if number is None or not isinstance(number.value, int | float):
        return None
    bound = {sign: float(limit) for sign, limit in (number.bound or {}).items()}
    return Number(name=number.name, value=number.value, unit=number.unit, bound=bound or None)


def summary(project: Project) -> str:
    """How many probes passed, of what and where."""
    record = evidence.read(project, GpuRun)
    if record is None:
        return suite.NOT_MEASURED
    counts = {word: [probe for probe in record.probes if probe.outcome == word] for word in ("passed", "not-run")}
    red = len(record.probes) - sum(map(len, counts.values()))
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return (
        f"**{len(counts['passed'])} passed, {red} red, {len(counts['not-run'])} not run**, without a certificate. "
        f"{cells.escaped(record.stack)}: {cells.escaped(versions)}; {record.distributions} distributions, Python "
        f"{cells.escaped(record.python)}, {cells.escaped(record.system)}. "
        f"{suite.source(project, record)}\n"
    )


def results(project: Project) -> str:
    """A row for each probe that ran."""
    record = evidence.read(project, GpuRun)
    if record is None:
        return suite.NOT_MEASURED
    rows = [
        [cells.code(probe.probe), probe.outcome, _number(probe), _bound(probe), f"{probe.seconds:.1f}"]
        for probe in record.probes
        if probe.outcome != "not-run"
    ]
    reasons: dict[str, list[str]] = {}
    for probe in record.probes:
        if probe.outcome == "not-run":
            reasons.setdefault(probe.reason, []).append(probe.probe)
    left = "".join(f"- {cells.escaped(reason)}: {cells.codes(names)}\n" for reason, names in reasons.items())
    table = cells.table(["probe", "outcome", "the number that matters", "bound", "seconds"], rows)
    return f"{table}\nNot run:\n\n{left}" if left else table


def _number(probe: Outcome) -> Markdown:
    if probe.outcome != "passed" or probe.headline is None:
        return cells.escaped(textwrap.shorten(probe.reason, REASON, placeholder=" …")) if probe.reason else DASH
    number = probe.headline
    return cells.joined([cells.code(number.name), cells.number(number.value), number.unit], " ")


def _bound(probe: Outcome) -> Markdown:
    return DASH if probe.outcome != "passed" or probe.headline is None else cells.bound(probe.headline.bound)
