"""The numbers of two runs of the suite, side by side: what became worse by more than chance.

The tolerances come from thirty runs of one stack under load (docs/evidence/false-alarms.json). They did not record
memory: its tolerances come from the stack's certificates and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from builder.certify.certificate import Measurement, ProbeResult, Statement


@dataclass(frozen=True)
class Tolerance:
    """A number is worse than it was when it is more than `times` what it was, and by more than `more`."""

    times: float
    more: float
    why: str


SECONDS = Tolerance(4.0, 5.0, "under load a probe took up to 3.5 times its median, and one of a second up to 4.5 times")
TOTAL = Tolerance(2.0, 20.0, "the slowest runs of all probes together took 1.94 times the median ones")
# Peaks are sampled, and a short one of several processes is met by chance.
MEMORY = Tolerance(2.0, 600.0, "the peak is sampled: from run to run of one stack, that of one probe moved by 490 MiB")
TOTAL_MEMORY = Tolerance(1.3, 512.0, "added over all probes, two runs of one stack were 2 % apart")
# A share of its bound. Numbers with a lower bound prove that a probe would notice; their size means nothing.
AGREEMENT = 0.5
AGREEMENT_WHY = "in thirty runs no number moved by more than 0.41 of its bound"


@dataclass(frozen=True)
class Regression:
    """A number that became worse beyond its tolerance. `probe` is empty for the whole suite."""

    probe: str
    what: str
    before: float
    after: float
    why: str

    def __str__(self) -> str:
        where = f"{self.probe}: " if self.probe else ""
        return f"{where}{self.what} {self.before:.4g} → {self.after:.4g} (tolerance: {self.why})"


def comparable(old: Statement, new: Statement) -> str:
    """Why times and memory cannot be compared; "" when they can."""
    for name, key in (("hardware", "class"), ("engine", "name")):
        before, after = ((statement.resource(name).annotations or {}).get(key) for statement in (old, new))
        if before != after:
            return f"other {name}: {before}, now {after}"
    if old.resource("suite").digest != new.resource("suite").digest:
        return "another suite"
    return ""


def regressions(old: Statement, new: Statement) -> list[Regression]:
    """Every number of the new run that is worse than in the old one, beyond its tolerance."""
    before, after = _passed(old), _passed(new)
    both = [name for name in after if name in before]
    worse = [regression for name in both for regression in agreement(before[name], after[name])]
    if comparable(old, new):
        return worse
    for name in both:
        worse += _beyond(name, "seconds", before[name].seconds, after[name].seconds, SECONDS)
        worse += memory(before[name], after[name])
    seconds = [sum(side[name].seconds for name in both) for side in (before, after)]
    peaks = [sum(side[name].peak_memory_mib for name in both) for side in (before, after)]
    worse += _beyond("", "seconds of the whole suite", seconds[0], seconds[1], TOTAL)
    return worse + _beyond("", "peak memory of all probes, added, in MiB", peaks[0], peaks[1], TOTAL_MEMORY)


def memory(before: ProbeResult, after: ProbeResult) -> list[Regression]:
    """The regression of a probe's memory, if any."""
    return _beyond(before.name, "peak memory in MiB", before.peak_memory_mib, after.peak_memory_mib, MEMORY)


def agreement(before: ProbeResult, after: ProbeResult) -> list[Regression]:
    """The numbers of a probe that came much nearer to their upper bound, though they keep it."""
    old = _shares(before.measurements)
    why = f"{AGREEMENT} more: {AGREEMENT_WHY}"
    return [
        Regression(before.name, f"{name}, as a share of its bound,", old[name], share, why)
        for name, share in _shares(after.measurements).items()
        if name in old and share - old[name] > AGREEMENT
    ]


def _passed(statement: Statement) -> dict[str, ProbeResult]:
    return {probe.name: probe for probe in statement.predicate.probes if probe.outcome == "passed"}


def _shares(measurements: list[Measurement]) -> Mapping[str, float]:
    """Each number with an upper bound, as a share of it."""
    shares = {}
    for measurement in measurements:
        most = (measurement.bound or {}).get("at_most")
        if isinstance(most, int | float) and most > 0 and isinstance(measurement.value, int | float):
            shares[measurement.name] = measurement.value / most
    return shares


def _beyond(probe: str, what: str, before: float, after: float, tolerance: Tolerance) -> list[Regression]:
    if after <= before * tolerance.times or after - before <= tolerance.more:
        return []
    why = f"{tolerance.times:g} times and {tolerance.more:g} more: {tolerance.why}"
    return [Regression(probe, what, before, after, why)]
