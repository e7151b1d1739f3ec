"""What a person reads, and the same as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from doctor.answer.nearest import Nearest
from doctor.base import terminal
from doctor.case import Case
from doctor.finding import Finding

HEADS = {"certain": "for sure", "likely": "likely", "possible": "may apply"}
HARM = {"silent-wrong": "trains wrongly without an error", "hang": "hangs", "crash": "crashes",
        "waste": "wastes memory or time", "resolve": "does not install together",
        "unread": "may hide what is wrong"}  # fmt: skip
MOST = 12
LONGEST = 2000  # characters of what is said, which may quote a stranger


def text(case: Case, found: list[Finding], nearest: Nearest | None) -> str:
    """The report, most harmful first."""
    environment, machine = case.environment, case.machine
    lines = [f"Looked at {environment.title}: {len(environment.packages)} packages"
             + (f", Python {environment.python}" if environment.python else "")]  # fmt: skip
    if machine.looked_at:
        driver = f"driver {machine.driver}, {machine.gpus} GPUs" if machine.driver else "no NVIDIA driver"
        lines.append(f"Machine: {driver}" + (f", {', '.join(machine.gpu_models)}" if machine.gpu_models else ""))
    lines.append("")
    sure = [one for one in found if one.sure]
    other = [one for one in found if not one.sure]
    if not sure:
        lines.append("Nothing is known to be wrong with it." if not case.error else
                     "No known cause fits this error for sure.")  # fmt: skip
        if not other:
            lines.append("That means that nothing known was found, not that it works: the suite is what shows that.")
        lines.append("")
    for number, one in enumerate(sure[:MOST], start=1):
        lines += _finding(number, one)
    if other:
        lines += ["What may apply, and what decides:", ""]
        for number, one in enumerate(other[:MOST], start=len(sure[:MOST]) + 1):
            lines += _finding(number, one)
    hidden = max(len(sure) - MOST, 0) + max(len(other) - MOST, 0)
    if hidden:
        lines += [f"{hidden} more: --json names them all", ""]
    if nearest is not None:
        lines += _nearest(nearest)
    return terminal.lines(lines).rstrip() + "\n"


def _finding(number: int, one: Finding) -> list[str]:
    explains = ", explains the error" if one.shown == 2 else ""
    head = f"   {HEADS[one.confidence]}{explains}; {HARM[one.severity]}  [{one.rule}]"
    lines = [f"{number}. {one.title[:LONGEST]}", head]
    lines += _said("because", one.evidence)
    lines += _said("look at", one.decide)
    lines += _said("remedy", one.remedy)
    lines += [f"   $ {command}" for command in one.commands]
    if one.links:
        lines.append(f"   see {one.links[0]}")
    return [*lines, ""]


def _said(head: str, every: list[str]) -> list[str]:
    shown = []
    for number, one in enumerate(every):
        first = f"   {head + ':' if not number else '':<9}"
        said = terminal.line(one[:LONGEST])
        shown += textwrap.wrap(said, 116, initial_indent=first, subsequent_indent=" " * 12) or [first]
    return shown


def _nearest(nearest: Nearest) -> list[str]:
    where = (
        f"certified on {', '.join(nearest.certified)}" if nearest.certified else "locked, not certified by anybody yet"
    )
    lines = [f"The nearest stack: {nearest.name} ({nearest.title}), {where}"]
    for name, have, wanted in nearest.difference:
        lines.append(f"   {name:<16} {have or '(not there)':<20} -> {wanted}")
    if nearest.others:
        lines.append(f"   and {nearest.others} other packages")
    if not nearest.difference and not nearest.others:
        return [*lines, "   this is it"]
    return [*lines, *(f"   {note}" for note in nearest.notes), *(f"   $ {command}" for command in nearest.commands)]


def as_json(case: Case, found: list[Finding], nearest: Nearest | None) -> dict[str, Any]:
    environment, machine = case.environment, case.machine
    return {
        "looked_at": environment.title,
        "python": environment.python,
        "packages": {name: package.version for name, package in sorted(environment.packages.items())},
        "machine": {"driver": machine.driver, "gpus": machine.gpus, "gpu_models": list(machine.gpu_models),
                    "compiler": machine.compiler, "python_headers": machine.headers, "nvcc": machine.nvcc}
        if machine.looked_at else None,
        "findings": [one.as_json() for one in found],
        "nearest": None if nearest is None else {
            "stack": nearest.name, "title": nearest.title, "certified_on": nearest.certified,
            "difference": [{"package": name, "installed": have, "wanted": wanted}
                           for name, have, wanted in nearest.difference],
            "others": nearest.others, "notes": nearest.notes, "commands": nearest.commands,
        },
    }  # fmt: skip
