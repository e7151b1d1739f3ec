"""The commands that search for the package behind a red probe that no advisory explains: `vetted bisect packages`."""

from __future__ import annotations

import shlex

from doctor.answer.nearest import Nearest
from doctor.answer.shell import Shell
from doctor.case import Case
from doctor.checks import measured
from doctor.finding import Finding

FREEZE = "freeze.txt"
PROGRAM = "vetted doctor"  # how the doctor of a whole Vetted is called; its single file has no other commands


def add(case: Case, findings: list[Finding], stack: Nearest | None, shell: Shell) -> None:
    """Give every unexplained red probe the search between the nearest stack, where it is green, and what is here."""
    python = case.environment.executable
    if stack is None or not python or not shell.doctor.endswith(PROGRAM):
        return
    vetted = shell.doctor[: -len(" doctor")]
    for finding in findings:
        if finding.rule == measured.RULE:
            ends = ["--good", stack.name, "--bad", FREEZE, "--probe", measured.first_probe(finding)]
            finding.commands = [shell.freeze(python, FREEZE), f"{vetted} bisect packages {shlex.join(ends)}"]
            finding.remedy.append(f"these commands search for the package behind it, between {stack.name} and this")
