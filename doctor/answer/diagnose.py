"""The diagnosis of a case: every check, put in order."""

from __future__ import annotations

from doctor.answer import steps
from doctor.case import Case
from doctor.checks import registry
from doctor.finding import Finding
from doctor.know import cuda
from doctor.read import context, symptoms

# Checks that an advisory about the same packages explains better.
EXPLAINED = ("moved-name", "missing-name", "requires-dist", "trl-vllm-range", "reported")


def findings(case: Case) -> list[Finding]:
    """What is wrong: what explains the error first, then the surest, then the most harmful."""
    context.complete(case.context, case.version("trl"), case.environment.python)
    _add_machine(case)
    distinct = _without_repetitions(case, list(registry.findings(case)))
    ordered = sorted(distinct, key=lambda finding: finding.order(case.failed))
    kept: list[Finding] = []
    for finding in ordered:
        if not any(_covers(other, finding) for other in kept):
            kept.append(finding)
    return kept


def _without_repetitions(case: Case, findings: list[Finding]) -> list[Finding]:
    """Without what others report of packages that we ran, or whose releases we read."""
    known = [finding for finding in findings if finding.sure and finding.shown and _was_read(case, finding)]
    explained = {package for finding in known for package in finding.packages}
    return [finding for finding in findings if finding.rule != "reported" or explained.isdisjoint(finding.packages)]


def _was_read(case: Case, finding: Finding) -> bool:
    """Is it from an advisory or from the published releases, with a later release that fixes it?"""
    if finding.rule == "moved-name":
        packages = ((case.version(name), range_) for way in finding.ways[:1] for name, range_ in way.items())
        return any(version and not steps.older(version, range_) for version, range_ in packages)
    return finding.rule.startswith("VETTED-")


def _add_machine(case: Case) -> None:
    """Add to the context what the machine tells."""
    facts, machine = case.context.facts, case.machine
    if machine.driver:
        facts.setdefault("driver", machine.driver)
    if machine.gpus is not None:
        facts.setdefault("gpus", str(machine.gpus))
    if models := machine.gpu_models or symptoms.gpu_models(case.error):
        facts.setdefault("gpu_model", ", ".join(models))
    if machine.inspected:
        facts.setdefault("compiler", machine.compiler is not None)
    torch_cuda = cuda.of_torch(case.environment)
    if torch_cuda:
        facts.setdefault("cuda", torch_cuda)


def _covers(finding: Finding, later: Finding) -> bool:
    """Does a finding say all that a later one says? The same, or more about the packages that it blames."""
    if (finding.rule, finding.packages, finding.title) == (later.rule, later.packages, later.title):
        return True
    return (
        later.rule in EXPLAINED
        and finding.sure
        and finding.shown >= later.shown
        and bool(later.packages)
        and set(later.packages) <= set(finding.packages)
    )
