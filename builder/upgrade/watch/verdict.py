"""The verdict of a watch, as Markdown: a file of its commit, and the text of its pull request."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

from builder.base.text import unlinked, word
from builder.certify.certificate import Measurement, ProbeResult, Statement
from builder.lock.change import changes
from builder.lock.lockfile import Lock
from builder.lock.renewal import Renewal
from builder.upgrade import compare
from builder.upgrade.outdated import OutdatedPin
from builder.upgrade.recertification import Recertification
from builder.upgrade.report import WORDS, sections

OUTCOMES = {**WORDS, "green": "passes", "nothing": "changes nothing"}
LONGEST = 72  # characters of a commit's subject


def subject(old: Lock, new: Lock, trials: Sequence[Recertification]) -> str:
    """One line: what moves, or what must not."""
    pins = [change for change in changes(old.versions, new.versions) if change.name in old.stack.packages]
    if pins:
        words = f"{old.name}: {', '.join(map(str, pins))}"
    else:
        first = next((trial for trial in trials if trial.outcome != "nothing"), None)
        words = f"{old.name}: {OUTCOMES[first.outcome] if first else 'nothing moves'}"
        if first and first.breaking:
            words = f"{old.name}: {', '.join(map(str, first.breaking.culprits))} {OUTCOMES[first.outcome]}"
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 1]}…"


def verdict(
    old: Lock, new: Lock, day: datetime.date, newer: Sequence[OutdatedPin], notices: Sequence[str],
    trials: Sequence[Recertification], certified: Statement | None = None, more: Sequence[str] = (),
) -> str:  # fmt: skip
    """The whole text, for the stack before and after the trials.

    `certified`: a certificate of the stack as it was, for trials without one of the same device and engine. `more`:
    sections that others wrote.
    """
    lines = [f"# {subject(old, new, trials)}", ""]
    if new.digest != old.digest:
        judged = f"**it may move.** The suite passed, and no number became worse. {_trained(trials)}"
        lines += [f"Verdict of {day}: {judged}", ""]
        lines += [f"The lock was {old.digest} and is {new.digest}.", ""]
    else:
        lines += [f"Verdict of {day}: **it stays.** The lock is {old.digest}.", ""]
    lines += _departures(old, trials)
    if notices:
        lines += ["## Certificates", "", *(f"- {unlinked(notice)}" for notice in notices), ""]
    lines += ["## New upstream", "", "| package | locked | newest | fits | in the way |", "|---|---|---|---|---|"]
    for pin in newer:
        fits = pin.fits if pin.fits != pin.locked else "nothing newer"
        lines.append("| " + " | ".join(map(unlinked, (pin.name, pin.locked, pin.newest, fits, pin.why_not))) + " |")
    lines += ["", *more]
    for number, trial in enumerate(trials, start=1):
        lines += _trial(number, trial, certified)
    return "\n".join(lines)


def renewed(renewal: Renewal) -> list[str]:
    """What a rebuild with today's Debian packages would change, one line for each thing to know."""
    lines = [str(fix) for fix in renewal.fixes if fix.cves or fix.unknown]
    if others := [f"{fix.source} {fix.old} → {fix.new}" for fix in renewal.fixes if not fix.cves and not fix.unknown]:
        lines.append(f"newer Debian packages without a CVE in their changelogs: {', '.join(others)}")
    return [*lines, renewal.note] if renewal.note else lines


def debian(renewal: Renewal | None, unknown: str) -> list[str]:
    """The same as a section."""
    if renewal is None:
        return ["## Debian packages", "", f"Not compared with the mirror: {unlinked(unknown)}.", ""]
    lines = [f"- {unlinked(line)}" for line in renewed(renewal)] or ["The mirror has nothing newer."]
    return ["## Debian packages", "", *lines, ""]


def _trained(trials: Sequence[Recertification]) -> str:
    """Whether what moves was also compared with the golden trajectories."""
    green = [trial for trial in trials if trial.outcome == "green"]
    if all(trial.training for trial in green):
        return "The training does not change."
    return "The training was not compared."


def _departures(old: Lock, trials: Sequence[Recertification]) -> Iterator[str]:
    """What passes the suite and trains differently is wrong, or wanted: no test knows which."""
    for trial in trials:
        if trial.outcome == "strays" and trial.new:
            pins = [each for each in changes(old.versions, trial.new.versions) if each.name in old.stack.packages]
            options = [each for change in pins for each in ("--upgrade", f"{change.name}=={change.new}")]
            words = (
                "the suite passes, and the training is another one. If that is wanted, this moves it all the same, "
                "because it does not train; then record the trajectories anew:"
            )
            yield from (
                f"**A person decides:** {words}",
                "",
                f"    vetted recertify {word(old.name)} {' '.join(map(word, options))}",
                "",
            )


def _trial(number: int, trial: Recertification, certified: Statement | None) -> Iterator[str]:
    moved = changes(trial.old.versions, trial.new.versions) if trial.new else ()
    pins = ", ".join(unlinked(str(change)) for change in moved if change.name in trial.old.stack.packages)
    yield from (f"## Trial {number}: {pins or 'what fits'} {OUTCOMES[trial.outcome]}", "")
    for line in sections(trial):
        yield f"#{line}" if line.startswith("## ") else line
    yield from _numbers(trial, trial.before or certified)


def _numbers(trial: Recertification, certified: Statement | None) -> Iterator[str]:
    """The headline of every probe, before and after."""
    if trial.statement is None:
        return
    before = {probe.name: probe for probe in certified.predicate.probes} if certified else {}
    why = compare.comparable(certified, trial.statement) if certified else ""
    yield from ("### Numbers, before and after", "")
    if why:
        yield from (f"Times and memory cannot be compared: {unlinked(why)}.", "")
    yield from ("| probe | number | before | after | seconds | MiB |", "|---|---|---|---|---|---|")
    for probe in trial.statement.predicate.probes:
        earlier = before.get(probe.name)
        timed = None if why else earlier
        seconds = _pair(timed.seconds if timed else None, probe.seconds)
        memory = _pair(timed.peak_memory_mib if timed else None, probe.peak_memory_mib)
        number = probe.headline.name if probe.headline else ""
        cells = (probe.name, number, _value(earlier), _value(probe), seconds, memory)
        yield "| " + " | ".join(map(unlinked, cells)) + " |"
    yield ""


def _value(probe: ProbeResult | None) -> str:
    """The headline of a probe that passed; else its outcome."""
    if probe is None:
        return "none"
    if probe.outcome != "passed" or probe.headline is None:
        return probe.outcome
    return _number(probe.headline)


def _number(measurement: Measurement) -> str:
    value = measurement.value
    shown = f"{value:.4g}" if isinstance(value, int | float) else str(value)
    return f"{shown} {measurement.unit}".strip()


def _pair(before: float | None, after: float) -> str:
    return f"{after:.3g}" if before is None else f"{before:.3g} → {after:.3g}"
