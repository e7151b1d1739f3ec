"""The suite in the documents: its probes, and how it was itself tested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builder.base import sources
from builder.base.project import Project
from builder.certify import catalogue
from builder.certify.catalogue import Bound
from builder.pages import cells, evidence, records
from builder.pages.cells import DASH, Markdown
from builder.pages.records import ControlRow, Distribution, ProbeOutcome, Record, SuiteRecord

NOT_MEASURED = "Not measured yet.\n"
MUTANTS = {records.Mutants: "hand", records.SystematicMutants: "rule"}


def probe_count(project: Project) -> str:
    catalogue_ = catalogue.read(project.smoke)
    count = sum(len(probe.bounds) for probe in catalogue_)
    return f"**{len(catalogue_)} probes** measure {count} numbers.\n"


def probes(project: Project) -> str:
    """Every probe: what it asks, its headline, and the headline's range over the runs of the certified stack."""
    alarms = evidence.read(project, records.FalseAlarms)
    rows = []
    for probe in catalogue.read(project.smoke):
        headline = probe.headline
        runs = alarms.probes.get(probe.name) if alarms else None
        measured = alarms.distributions(probe.name).get(headline.name) if alarms else None
        seconds = cells.number(runs.seconds.median) if runs else DASH
        rows.append(
            [
                cells.code(probe.name),
                probe.asks,
                _named(headline),
                cells.bound(headline.bound),
                _range(measured),
                seconds,
            ]
        )
    return cells.table(["probe", "asks", "the number that matters", "bound", "measured", "seconds"], rows)


def numbers(project: Project) -> str:
    """Every number of every probe with its bound, the range that was measured, and the reason for the bound."""
    alarms = evidence.read(project, records.FalseAlarms)
    rows = []
    for probe in catalogue.read(project.smoke):
        measured = alarms.distributions(probe.name) if alarms else {}
        for bound in probe.bounds:
            spread = _spread(measured.get(bound.name))
            rows.append([cells.code(probe.name), _named(bound), cells.bound(bound.bound), *spread, bound.why])
    return cells.table(["probe", "number", "bound", "smallest", "median", "largest", "why"], rows)


def gpu_probes(project: Project) -> str:
    """What a certificate for CUDA demands: the probes by the GPUs that they need, and those whose memory counts."""
    catalogue_ = catalogue.read(project.smoke)
    several = sorted({probe.gpus for probe in catalogue_ if probe.gpus > 1})
    rows: list[list[object]] = []
    for gpus in (1, *several):
        needing = [probe for probe in catalogue_ if probe.gpus == gpus]
        for forks, processes in ((False, "process"), (True, "process that it forks")):
            names = [probe.name for probe in needing if probe.forks == forks]
            if names:
                rows.append([gpus, len(names), cells.codes(names), f"each {processes} allocated memory on its GPU"])
    rest = [probe.name for probe in catalogue_ if not probe.gpus]
    if rest:
        rows.append(["none", len(rest), cells.codes(rest), "says nothing about a GPU"])
    return cells.table(["GPUs", "probes", "which", "checked besides its numbers"], rows)


def false_alarms(project: Project) -> str:
    record = evidence.read(project, records.FalseAlarms)
    if record is None:
        return NOT_MEASURED
    head = (
        f"**{len(record.false_alarms)} red** in {record.runs} runs of {cells.code(record.stack)} with seeds "
        f"{cells.escaped(record.seeds)}, {record.side_by_side} runs side by side on {record.cores} cores"
        f"{f', {record.runs_on_one_core} of them on one core only' if record.runs_on_one_core else ''}. "
        f"{source(project, record)}"
    )
    alarms = [
        f"- seed {alarm.seed}: {cells.code(alarm.probe)}: {cells.escaped(alarm.reason)}"
        for alarm in record.false_alarms
    ]
    return "\n".join([head, *alarms]) + "\n"


def control_results(project: Project) -> str:
    record = evidence.read(project, records.Controls)
    if record is None:
        return NOT_MEASURED
    return (
        f"**{record.caught} of {record.controls}** caught for the right reason, **{record.false_alarms}** false alarms "
        f"on their twins. {source(project, record)}\n"
    )


def controls(project: Project) -> str:
    """Every control: what must fail on it, what did, and what makes it good."""
    record = evidence.read(project, records.Controls)
    if record is None:
        return NOT_MEASURED
    rows = [
        [
            cells.code(row.control), row.title, cells.codes(row.expected), _outcomes(row.on_control, row.expected),
            _change(row), _outcomes(row.on_twin, row.expected),
        ]
        for row in record.rows
    ]  # fmt: skip
    return cells.table(["control", "what is wrong", "must fail", "seen", "made good by", "seen then"], rows)


def mutant_results(project: Project) -> str:
    """How many were killed, of those that people thought of and of those that a rule made."""
    return "\n".join(_killed(project, kind, made) for kind, made in MUTANTS.items())


def _killed(project: Project, kind: type[records.Mutants], made: str) -> str:
    record = evidence.read(project, kind)
    if record is None:
        return f"Made by {made}: {NOT_MEASURED}"
    total = record.total
    equivalent = f" {len(record.equivalent)} others change nothing that trains." if record.equivalent else ""
    return (
        f"Made by {made}: **{total.killed} of {total.mutants}** killed ({total.rate:.0%}).{equivalent} "
        f"{source(project, record)}\n"
    )


def mutants(project: Project) -> str:
    """The mutants of each package that people thought of, and why each survivor survives."""
    return _mutants(project, records.Mutants)


def systematic_mutants(project: Project) -> str:
    """The same for those that a rule made."""
    return _mutants(project, records.SystematicMutants)


def _mutants(project: Project, kind: type[records.Mutants]) -> str:
    record = evidence.read(project, kind)
    if record is None:
        return NOT_MEASURED
    rows = [
        [name, tally.mutants, tally.killed, Markdown(f"{tally.rate:.0%}")] for name, tally in record.packages.items()
    ]
    survivors = [
        [cells.code(mutant.id), mutant.why, mutant.reason_survived or "not looked into"]
        for mutant in record.mutants
        if mutant.outcome == "survived"
    ]
    table = cells.table(["package", "mutants", "killed", "rate"], rows)
    return (
        f"{table}\n{cells.table(['survivor', 'what it breaks', 'why it survives'], survivors)}" if survivors else table
    )


def speed(project: Project) -> str:
    record = evidence.read(project, records.SuiteSpeed)
    if record is None:
        return NOT_MEASURED
    return (
        f"{record.probes} probes in {record.wall_s:.0f} s: {record.imports_s:.0f} s of imports and "
        f"{record.compute_s:.0f} s of the probes' own compute, **{record.overhead:.2f}** times the two together. "
        f"The same probes in a fresh process each: {record.fresh_s:.0f} s, **{record.fresh_over_suite:.1f}** times "
        f"the suite. {source(project, record)}\n"
    )


def source(project: Project, record: SuiteRecord) -> str:
    """When, where and how a record was measured, and whether the suite has changed since."""
    return f"{measured(record)}; suite {cells.short(record.suite)}{older_suite(project, record.suite)}."


def measured(record: Record) -> str:
    return f"Measured on {cells.escaped(record.date)} ({cells.escaped(record.machine)}) by {cells.code(record.command)}"


def older_suite(project: Project, digest: str) -> str:
    return "" if digest == sources.digest(project.smoke) else ", an earlier suite"


def _outcomes(outcomes: Sequence[ProbeOutcome], names: Sequence[str]) -> Markdown:
    return cells.joined([row.outcome for row in outcomes if row.probe in names], ", ")


def _change(row: ControlRow) -> Markdown:
    """What makes a control good: another distribution, or patches, each with a link to it."""
    links = [Markdown(f"patch {cells.link(Path(file).stem, file)}") for file in row.patches]
    return cells.joined(links, ", ") or cells.escaped(row.twin)


def _named(bound: Bound) -> Markdown:
    return Markdown(cells.code(bound.name) + (f", {cells.escaped(bound.unit)}" if bound.unit else ""))


def _spread(measured: Distribution | None) -> list[Markdown]:
    if measured is None:
        return [DASH] * 3
    return [cells.number(value) for value in (measured.min, measured.median, measured.max)]


def _range(measured: Distribution | None) -> Markdown:
    if measured is None:
        return DASH
    least, most = cells.number(measured.min), cells.number(measured.max)
    runs = f"in {measured.n} runs"
    return Markdown(f"{least} {runs}" if least == most else f"{least} to {most} {runs}")
