"""The whole question: every advisory, every check and every name in the error, put in order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Callable

from doctor.case import Case
from doctor.checks import advisories as match
from doctor.checks import binary, compiled, cuda, names, raised, remains, repairs, requires, told, tools
from doctor.finding import Finding
from doctor.read import context

CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    requires.look, requires.python, requires.trl_vllm, cuda.driver, cuda.majors, cuda.bitsandbytes, cuda.runtime,
    compiled.look, compiled.siblings, compiled.of_error, binary.look, tools.look, remains.look,
    told.demands, told.pairs, told.removed, told.unpublished, told.least, told.look, raised.look,
)  # fmt: skip

MOST = 500  # findings of one check: each is compared with every other


def findings(case: Case) -> list[Finding]:
    """What is wrong: what explains the error first, then the surest, then the most harmful."""
    environment, known = case.environment, case.context
    context.complete(known, environment.version("trl"), environment.python)
    _from_machine(case)
    found = list(match.advisories(case.data.get("advisories", []), environment, known, case.error))
    for check in CHECKS:
        found += itertools.islice(check(case), MOST)
    found += itertools.islice(names.findings(case.apis, environment, case.error), MOST)
    found += names.undefined(case.apis, environment, case.error)
    found += names.raised(case.apis, environment, case.error)
    found += repairs.findings(case.fixes, case)
    found += names.models(case.apis, environment, case.error)
    found += names.signatures(case.apis, environment, case.error)
    failed = match.FAILED.search(case.error) is not None
    return _once(sorted(found, key=lambda one: one.order(failed)))


def _from_machine(case: Case) -> None:
    known, machine = case.context.known, case.machine
    if machine.driver:
        known.setdefault("driver", machine.driver)
    if machine.gpus is not None:
        known.setdefault("gpus", str(machine.gpus))
    if machine.gpu_models:
        known.setdefault("gpu_model", ", ".join(machine.gpu_models))
    if machine.looked_at:
        known.setdefault("compiler", machine.compiler is not None)
    built = cuda.of_torch(case)
    if built:
        known.setdefault("cuda", built)


def _once(found: list[Finding]) -> list[Finding]:
    """The same said twice is said once: an advisory speaks for a check that blames no more than it does."""
    kept: list[Finding] = []
    for one in found:
        same = [
            other for other in kept
            if (other.rule == one.rule and other.packages == one.packages and other.title == one.title)
            or (one.rule in ("moved-name", "missing-name", "requires-dist", "trl-vllm-range") and other.sure
            and other.shown >= one.shown and one.packages and set(one.packages) <= set(other.packages))
        ]  # fmt: skip
        if not same:
            kept.append(one)
    return kept
