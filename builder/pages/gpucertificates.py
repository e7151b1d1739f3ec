"""What ran on a GPU: the certificates of the stacks for CUDA, probe by probe, in the documents."""

from __future__ import annotations

from collections.abc import Iterator

from builder.base.project import Project
from builder.certify import certificate
from builder.certify.assessment import Assessments
from builder.certify.certificate import ProbeResult, Statement
from builder.intent import stack
from builder.lock import lockfile
from builder.pages import cells, matrix
from builder.pages.cells import DASH, Markdown

NONE = "None yet.\n"
EARLIER = (
    " **The suite or the image has changed since**: this is what an earlier one said, and today's has not run there."
)
COLUMNS = ("probe", "the number that matters", "bound", "seconds")


def certificates(project: Project) -> str:
    """A paragraph and a table for each certificate; probes that could not run are listed below it."""
    return "\n".join(_certificate(project, *each) for each in _from_gpus(project)) or NONE


def _from_gpus(project: Project) -> Iterator[tuple[str, Statement, bool]]:
    """Our stacks' certificates from GPUs, and whether each is of an earlier suite or image.

    Others that are not valid are left out. That one has expired does not count.
    """
    assessments = Assessments(project)
    for name in stack.shipped(project):
        lock, statements = lockfile.load(project, name), certificate.of_stack(project, name)
        for assessment in assessments.of(lock):
            valid = not assessment.standing(assessments.terms(lock).day)
            if assessment.gpus and (valid or assessment.earlier):
                yield name, statements[assessment.name], not valid


def _certificate(project: Project, name: str, statement: Statement, earlier: bool) -> str:
    hardware, engine, python = (statement.resource(part).annotations or {} for part in ("hardware", "engine", "python"))
    packages = lockfile.load(project, name).versions
    versions = ", ".join(f"{package} {packages[package]}" for package in matrix.COLUMNS if package in packages)
    versions = f" {cells.escaped(versions)}." if versions else ""
    ran = [probe for probe in statement.predicate.probes if probe.outcome == "passed"]
    head = (
        f"**{cells.code(name)} on {cells.escaped(statement.hardware)}**, {cells.escaped(hardware.get('cores'))} cores, "
        f"{cells.escaped(engine.get('system'))}, Python {cells.escaped(python.get('version'))}, engine "
        f"{cells.escaped(engine.get('name'))}, on {statement.predicate.issued}: {len(ran)} probes passed, none is "
        f"red.{versions}{EARLIER if earlier else ''}\n"
    )
    table = cells.table(COLUMNS, [_row(probe) for probe in ran])
    reasons: dict[str, list[str]] = {}
    for probe, reason in statement.predicate.notRun.items():
        reasons.setdefault(reason.partition("\n")[0], []).append(probe)
    left = "".join(f"- {cells.escaped(reason)}: {cells.codes(names)}\n" for reason, names in reasons.items())
    return f"{head}\n{table}" + (f"\nNot run:\n\n{left}" if left else "")


def _row(probe: ProbeResult) -> list[Markdown]:
    number, seconds = probe.headline, Markdown(f"{probe.seconds:.1f}")
    if number is None or not isinstance(number.value, int | float):
        return [cells.code(probe.name), DASH, DASH, seconds]
    bound = {sign: float(limit) for sign, limit in (number.bound or {}).items()}
    value = cells.joined(filter(None, [cells.code(number.name), cells.number(number.value), number.unit]), " ")
    return [cells.code(probe.name), value, cells.bound(bound or None), seconds]
