"""The answer as text for people, and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from doctor.answer.nearest import Nearest
from doctor.base import terminal
from doctor.case import Case
from doctor.finding import EXPLAINS, Finding

CONFIDENCES = {"certain": "for sure", "likely": "likely", "possible": "may apply"}
SEVERITIES = {
    "silent-wrong": "trains wrongly without an error", "hang": "hangs", "crash": "crashes",
    "waste": "wastes memory or time", "resolve": "does not install together", "unread": "may hide what is wrong",
}  # fmt: skip
MOST = 3  # findings in full; of the others the sure ones have a line each
MOST_LINES = 12
LONGEST = 2000  # characters of a line, which may quote a stranger
WIDTH = 116


def text(case: Case, findings: list[Finding], nearest: Nearest | None, *, everything: bool = False) -> str:
    """The report: what would change most for this user in full, the rest in a line; `everything`: all of it in full."""
    lines = _heading(case)
    sure = [finding for finding in findings if finding.sure]
    telling = [finding for finding in findings if everything or finding.sure or _tells(finding, case)]
    full = telling if everything else telling[:MOST]
    guesses = [finding for finding in full if not finding.sure]
    if case.measured:
        lines += [_measured(case), ""]
    if not sure and any(result.outcome == "passed" for result in case.measured):
        lines += ["Every probe that ran passed here, and nothing is known to be wrong with it.", ""]
    elif not sure:
        lines.append(
            "No known cause fits this error for sure." if case.error else "Nothing is known to be wrong with it."
        )
        if not guesses:
            lines.append("This means that nothing known was found, not that it works: only the suite shows that.")
        lines.append("")
    for number, finding in enumerate(full, start=1):
        if finding in guesses[:1]:
            lines += ["What may apply, and how to decide:", ""]
        lines += _finding(number, finding)
    apart = [finding for finding in findings if finding.apart and finding not in full]
    lines += _apart(apart)
    lines += _folded([finding for finding in findings if finding not in full and finding not in apart])
    if nearest is not None:
        mended = any(finding.sure and finding.commands for finding in full)
        lines += _nearest(nearest, brief=mended and not everything)
    return terminal.lines(lines).rstrip() + "\n"


def _measured(case: Case) -> str:
    count = {"passed": 0, "not-run": 0, "red": 0}
    for result in case.measured:
        count["red" if result.red else result.outcome] += 1
    return f"Measured: {count['passed']} passed, {count['red']} red, {count['not-run']} not run"


def _tells(finding: Finding, case: Case) -> bool:
    """Is a guess worth reading in full? It speaks of the error; without an error, of what is configured here."""
    return bool(finding.shown) if case.error else not finding.idle


def _apart(findings: list[Finding]) -> list[str]:
    """What is wrong for sure and raises no error, where another error was given."""
    if not findings:
        return []
    lines = [f"   {finding.title[:LONGEST]}  [{finding.rule}]" for finding in findings[:MOST_LINES]]
    if len(findings) > MOST_LINES:
        lines.append(f"   and {len(findings) - MOST_LINES} more")
    return ["Apart from this error, for sure (--all prints the fixes):", *lines, ""]


def _folded(findings: list[Finding]) -> list[str]:
    """The others: a line for each that is sure, one for the rest."""
    lines = [f"Also {CONFIDENCES[finding.confidence]}: {finding.title[:LONGEST]}  [{finding.rule}]"
             for finding in findings if finding.sure][:MOST_LINES]  # fmt: skip
    rest = len(findings) - len(lines)
    if rest:
        speaking = "may matter for some models or settings" if not lines else "may apply"
        lines.append(f"{rest} more {speaking}: --all prints them")
    return [*lines, ""] if lines else []


def _heading(case: Case) -> list[str]:
    environment, machine = case.environment, case.machine
    python = f", Python {environment.python}" if environment.python else ""
    lines = [f"Looked at {environment.title}: {_count(len(environment.packages), 'package')}{python}"]
    if machine.inspected:
        driver = f"driver {machine.driver}, {machine.gpus} GPUs" if machine.driver else "no NVIDIA driver"
        models = f", {', '.join(machine.gpu_models)}" if machine.gpu_models else ""
        lines.append(f"Machine: {driver}{models}")
    if case.elsewhere:
        lines.append(f"The error comes from another environment: {case.elsewhere}. Use --python to look at that one.")
    return [*lines, ""]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")


def _finding(number: int, finding: Finding) -> list[str]:
    explains = ", explains the error" if finding.shown == EXPLAINS else ""
    confidence = "for sure, apart from this error" if finding.apart else CONFIDENCES[finding.confidence]
    return [
        f"{number}. {finding.title[:LONGEST]}",
        f"   {confidence}{explains}; {SEVERITIES[finding.severity]}  [{finding.rule}]",
        *_paragraphs("because", finding.evidence),
        *_paragraphs("look at", finding.decide),
        *_paragraphs("remedy", finding.remedy),
        *(f"   $ {command}" for command in finding.commands),
        *(f"   see {link}" for link in finding.links[:1]),
        "",
    ]


def _paragraphs(label: str, texts: list[str]) -> list[str]:
    lines = []
    for number, paragraph in enumerate(texts):
        first = f"   {'' if number else f'{label}:':<9}"
        content = terminal.line(paragraph[:LONGEST])
        lines += textwrap.wrap(content, WIDTH, initial_indent=first, subsequent_indent=" " * 12) or [first]
    return lines


def _nearest(nearest: Nearest, *, brief: bool) -> list[str]:
    """The nearest stack; `brief`: in two lines, where a smaller step mends what is wrong."""
    places = ", ".join(nearest.certified)
    state = f"certified on {places}" if places else "locked, not certified by anybody yet"
    lines = [f"The nearest stack: {nearest.name} ({nearest.title}), {state}"]
    if brief:
        return [*lines, "   --all prints the difference and the commands that install it"]
    lines += [
        f"   {step.package:<16} {step.installed or '(not installed)':<20} -> {step.locked}"
        for step in nearest.difference
    ]
    if nearest.others:
        lines.append(f"   and {_count(nearest.others, 'other package')}")
    if not nearest.difference and not nearest.others:
        return [*lines, "   this is it"]
    return [*lines, *(f"   {note}" for note in nearest.notes), *(f"   $ {command}" for command in nearest.commands)]


def as_json(case: Case, findings: list[Finding], nearest: Nearest | None) -> dict[str, Any]:
    """The answer for --json: also what was given, so that an issue with it says everything."""
    environment, machine = case.environment, case.machine
    return {
        "looked_at": environment.title,
        "python": environment.python,
        "packages": {name: package.version for name, package in sorted(environment.packages.items())},
        "machine": {"driver": machine.driver, "gpus": machine.gpus, "gpu_models": list(machine.gpu_models),
                    "compiler": machine.compiler, "python_headers": machine.headers, "nvcc": machine.nvcc}
        if machine.inspected else None,
        "run": {"facts": case.context.facts, "options": case.context.flags, "error": case.error[-LONGEST:],
                "folder_of_the_error": case.elsewhere},
        "measured": [
            {"probe": result.probe, "outcome": result.outcome, "reason": result.reason} for result in case.measured
        ],
        "findings": [finding.as_json() for finding in findings],
        "nearest": None if nearest is None else {
            "stack": nearest.name, "title": nearest.title, "certified_on": nearest.certified,
            "difference": [{"package": step.package, "installed": step.installed, "wanted": step.locked}
                           for step in nearest.difference],
            "others": nearest.others, "notes": nearest.notes, "commands": nearest.commands,
        },
    }  # fmt: skip
