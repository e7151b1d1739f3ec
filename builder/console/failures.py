"""Why something is red: what a probe says, what is known of it, and which controls surprised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from builder.base import text
from builder.console.tables import bound, number
from builder.intent import explanation, ranges

if TYPE_CHECKING:  # each takes a tenth of a second
    from builder.certify.certificate import ProbeResult
    from builder.certify.control import ControlResult
    from builder.intent.advisory import Advisory

LINES = 20  # of a reason
TAIL = 8  # lines of a log
NEAREST = 3  # advisories, when none is certain


def reasons(
    probes: Sequence[ProbeResult], versions: Mapping[str, str], advisories: Sequence[Advisory]
) -> Iterator[Text]:
    """For each probe that did not pass: why, why that matters, and what is known of it. `versions`: of the lock."""
    for probe in probes:
        if probe.outcome == "passed":
            continue
        reason = _indented(probe.reason or "no reason given")
        yield Text.assemble((text.line(probe.name, 100), "bold"), f": {probe.outcome}: {reason}")
        for measurement in probe.measurements:
            if not measurement.ok:
                why = f" ({measurement.why})" if measurement.why else ""
                value, limit = number(measurement.value), bound(measurement)
                yield Text(text.line(f"  {measurement.name} is {value}, bound {limit}{why}"))
        if probe.outcome == "not-run":
            continue
        if probe.matters:
            yield Text(text.line(f"  why it matters: {probe.matters}"))
        yield from _known(probe, versions, advisories)
        if probe.log_tail:
            yield from (
                Text("  │ " + text.line(line), style="dim") for line in probe.log_tail.strip().splitlines()[-TAIL:]
            )


def _indented(reason: str) -> str:
    """A stranger's words: no line of them looks like one of ours."""
    lines = [text.line(line) for line in reason.splitlines()]
    return "\n    ".join([*lines[:LINES], *(["…"] if len(lines) > LINES else [])])


def _known(probe: ProbeResult, versions: Mapping[str, str], advisories: Sequence[Advisory]) -> Iterator[Text]:
    """What is known of a red probe: all that is certain, else the three that are nearest."""
    matches = explanation.explain(advisories, probe.name, f"{probe.reason}\n{probe.log_tail}", versions)
    for match in [match for match in matches if match.judgement == "certain"] or matches[:NEAREST]:
        known = match.advisory
        if match.judgement == "no":
            combinations = (ranges.text(affected.packages) for affected in known.affected)
            where = " or ".join(dict.fromkeys(filter(None, combinations)))
            yield Text(f"  seen before{f' with {where}' if where else ''}: {known.id} {known.summary}")
            continue
        # Where the symptom was seen, nobody needs to be told in which context it shows.
        sure = match.judgement == "certain" or match.symptomatic
        yield Text.assemble("  known: ", (known.id, "bold"), f" {'matches' if sure else 'may match'}: {known.summary}")
        for place, affected in enumerate(() if sure else known.combinations(versions)):
            yield Text(f"         {'or ' if place else ''}if: {affected.context}")
        yield Text(f"         fix: {known.remedy}")


def surprises(controls: Sequence[ControlResult], advisories: Sequence[Advisory]) -> Iterator[Text]:
    """Controls that were not as expected, and which other probes were red."""
    for control in controls:
        name = (control.name, "bold")
        if not control.caught:
            yield Text.assemble(
                name, f": must fail {', '.join(control.fails)}, saying {control.reason!r}; this happened:"
            )
            yield from reasons(control.bad.of(control.fails), control.bad.versions, advisories)
        if control.false_alarm:
            yield Text.assemble(name, f": its twin ({control.change}) must pass, and did not:")
            yield from reasons(control.twin.of(control.fails), control.twin.versions, advisories)
        for side, results in (("control", control.bad.results), ("twin", control.twin.results)):
            for result in results:
                if result.name not in control.fails and result.outcome not in ("passed", "not-run"):
                    reason = _indented(result.reason or "")
                    yield Text.assemble(name, f": on the {side} also {result.name}: {reason}")
