"""The answer as text for people, and as JSON."""

from __future__ import annotations

import textwrap
from typing import Any

from doctor.answer.nearest import Nearest
from doctor.answer.together import Pin, Together
from doctor.base import terminal, versions
from doctor.case import Case
from doctor.checks import measured
from doctor.finding import EXPLAINS, Finding
from doctor.read.environment import Problem

CONFIDENCES = {"certain": "for sure", "likely": "likely", "possible": "may apply"}
SEVERITIES = {
    "silent-wrong": "trains wrongly without an error", "hang": "hangs", "crash": "crashes",
    "waste": "wastes memory or time", "resolve": "does not install together", "unread": "may hide what is wrong",
}  # fmt: skip
MOST = 3  # findings in full; of the others the sure ones have a line each
MOST_LINES = 12
LONGEST = 2000  # characters of a line, which may quote a stranger
WIDTH = 116


def text(
    case: Case,
    findings: list[Finding],
    nearest: Nearest | None,
    together: Together | None = None,
    *,
    everything: bool = False,
) -> str:
    """The report: what would change most for this user in full, the rest in a line; `everything`: all of it in full."""
    lines = _heading(case)
    sure = [finding for finding in findings if finding.sure]
    telling = [finding for finding in findings if everything or finding.sure or _tells(finding, case)]
    full = telling if everything else telling[:MOST]
    guesses = [finding for finding in full if not finding.sure]
    if case.measured:
        lines += [*_measured(case), ""]
    if together is not None:
        lines += _together(together, full)
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
        fixed = together is not None and finding in together.fixes
        lines += _finding(number, finding, with_commands=everything or not fixed)
    apart = [finding for finding in findings if finding.apart and finding not in full]
    all_fixed = together is not None and all(finding in together.fixes for finding in apart)
    lines += _apart(apart, all_fixed)
    lines += _folded([finding for finding in findings if finding not in full and finding not in apart])
    if nearest is not None:
        # The commands for a probe that nothing explains search, and fix nothing.
        fixed = any(finding.sure and finding.commands and finding.rule != measured.RULE for finding in full)
        fixed = fixed and not (together is not None and together.left)
        lines += _nearest(nearest, brief=fixed and not everything)
    return terminal.lines(lines).rstrip() + "\n"


def _measured(case: Case) -> list[str]:
    count = {"passed": 0, "not-run": 0, "red": 0}
    long = [result.probe for result in case.measured if result.left_out]
    for result in case.measured:
        count["red" if result.red else result.outcome] += not result.left_out
    lines = [f"Measured: {count['passed']} passed, {count['red']} red, {count['not-run']} not run"]
    return [*lines, f"Left out, because they are long: {', '.join(long)}; --measure-all runs them"] if long else lines


def _together(together: Together, full: list[Finding]) -> list[str]:
    """The one command, why each package is in it, and what it cannot fix."""
    numbers = {id(finding): str(number) for number, finding in enumerate(full, start=1)}

    def called(findings: list[Finding]) -> str:
        words = list(dict.fromkeys(numbers.get(id(finding), finding.rule) for finding in findings))
        return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "nothing"

    fixes = called(together.fixes)
    lines = [f"This command fixes {fixes}{' together' if len(together.fixes) > 1 else ''}:", "",
             f"   $ {together.command}"]  # fmt: skip
    lines += [f"   {_pin(pin, called(pin.fixes))}" for pin in together.pins]
    if together.left:
        lines += [
            "",
            f"It does not fix {called(together.left)}: no known releases of these packages fix all of it.",
            "Those of the nearest stack go together; the commands that install it are at the end.",
        ]
    return [*lines, ""]


def _pin(pin: Pin, fixes: str) -> str:
    required = pin.range_ if pin.range_ != versions.ANY else "any"
    why = f"fixes {fixes}" if pin.fixes else "needed by the others"
    return f"{pin.package:<16} {pin.installed or '(not installed)':<16} -> {required:<20} {why}"


def _tells(finding: Finding, case: Case) -> bool:
    """Is a guess worth reading in full? It speaks of the error; without an error, of what is configured here."""
    return bool(finding.shown) if case.error else not finding.idle


def _apart(findings: list[Finding], fixed: bool) -> list[str]:
    """What is wrong for sure and raises no error, where another error was given."""
    if not findings:
        return []
    lines = [f"   {finding.title[:LONGEST]}  [{finding.rule}]" for finding in findings[:MOST_LINES]]
    if len(findings) > MOST_LINES:
        lines.append(f"   and {len(findings) - MOST_LINES} more")
    where = "the command above fixes it" if fixed else "--all prints the fixes"
    return [f"Apart from this error, for sure ({where}):", *lines, ""]


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
    if case.given:
        lines.append(f"Given: {', '.join(map(str, case.given))}")
    if case.context.unreadable:
        where, why = case.context.unreadable
        lines.append(f"The error comes from {where[:LONGEST]}, which {why}. So another environment was looked at.")
    elif case.elsewhere:
        lines.append(f"The error comes from another environment: {case.elsewhere}. Use --python to look at that one.")
    return [*lines, ""]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("s" if number != 1 else "")


def _finding(number: int, finding: Finding, *, with_commands: bool) -> list[str]:
    explains = ", explains the error" if finding.shown == EXPLAINS else ""
    confidence = "for sure, apart from this error" if finding.apart else CONFIDENCES[finding.confidence]
    return [
        f"{number}. {finding.title[:LONGEST]}",
        f"   {confidence}{explains}; {SEVERITIES[finding.severity]}  [{finding.rule}]",
        *_paragraphs("because", finding.evidence),
        *_paragraphs("look at", finding.decide),
        *_paragraphs("remedy", finding.remedy),
        *(f"   $ {command}" for command in finding.commands if with_commands),
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
    """The nearest stack; `brief`: in two lines, where a smaller step fixes what is wrong."""
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


def _said(problem: Problem | None) -> str | None:
    return f"{problem.where} {problem.what}" if problem else None


def as_json(
    case: Case, findings: list[Finding], nearest: Nearest | None, together: Together | None = None
) -> dict[str, Any]:
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
                "folder_of_the_error": case.elsewhere,
                "unreadable": _said(case.context.unreadable), "silent": _said(case.context.silent),
                "damaged": [_said(problem) for problem in case.context.damaged],
                "blank": [_said(problem) for problem in case.context.blank]},
        "given": [{"path": each.path, "as": each.option} for each in case.given],
        "measured": [
            {"probe": result.probe, "outcome": result.outcome, "reason": result.reason} for result in case.measured
        ],
        "together": None if together is None else {
            "command": together.command, "fixes": [finding.rule for finding in together.fixes],
            "does_not_fix": [finding.rule for finding in together.left],
            "changes": [{"package": pin.package, "installed": pin.installed, "required": pin.range_,
                         "fixes": [finding.rule for finding in pin.fixes]} for pin in together.pins],
        },
        "findings": [finding.as_json() for finding in findings],
        "nearest": None if nearest is None else {
            "stack": nearest.name, "title": nearest.title, "certified_on": nearest.certified,
            "difference": [{"package": step.package, "installed": step.installed, "required": step.locked}
                           for step in nearest.difference],
            "others": nearest.others, "notes": nearest.notes, "commands": nearest.commands,
        },
    }  # fmt: skip
