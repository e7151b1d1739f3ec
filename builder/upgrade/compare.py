"""The numbers of two runs of the suite, side by side: what became worse by more than it does by itself.

The tolerances come from thirty runs of one stack under load (docs/evidence/false-alarms.json); those of memory, which
they did not record, from its certificates and reports.
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
# Of its bound. Numbers with a lower bound prove that a probe would notice; how large they are says nothing.
AGREEMENT = 0.5
AGREEMENT_WHY = "in thirty runs no number moved by more than 0.41 of its bound"


@dataclass(frozen=True)
class Worse:
    """One number that became worse beyond its tolerance. `probe` is empty for the whole suite."""

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
        was, is_ = ((one.resource(name).annotations or {}).get(key) for one in (old, new))
        if was != is_:
            return f"other {name}: {was}, now {is_}"
    if old.resource("suite").digest != new.resource("suite").digest:
        return "another suite"
    return ""


def worse(old: Statement, new: Statement) -> list[Worse]:
    """Every number of the new run that is worse than in the old one, beyond its tolerance."""
    before = {one.name: one for one in old.predicate.probes if one.outcome == "passed"}
    after = {one.name: one for one in new.predicate.probes if one.outcome == "passed"}
    both = [name for name in after if name in before]
    found = [one for name in both for one in agreement(before[name], after[name])]
    if comparable(old, new):
        return found
    for name in both:
        found += _beyond(name, "seconds", before[name].seconds, after[name].seconds, SECONDS)
        found += memory(before[name], after[name])
    took = [sum(side[name].seconds for name in both) for side in (before, after)]
    held = [sum(side[name].peak_memory_mib for name in both) for side in (before, after)]
    found += _beyond("", "seconds of the whole suite", took[0], took[1], TOTAL)
    return found + _beyond("", "peak memory of all probes, added, in MiB", held[0], held[1], TOTAL_MEMORY)


def memory(before: ProbeResult, after: ProbeResult) -> list[Worse]:
    """Did a probe take more memory?"""
    return _beyond(before.name, "peak memory in MiB", before.peak_memory_mib, after.peak_memory_mib, MEMORY)


def agreement(before: ProbeResult, after: ProbeResult) -> list[Worse]:
    """Which of a probe's numbers came much nearer to their upper bound, though they keep it?"""
    old = _shares(before.measurements)
    return [
        Worse(before.name, f"{name}, as a share of its bound,", old[name], share, f"{AGREEMENT} more: {AGREEMENT_WHY}")
        for name, share in _shares(after.measurements).items()
        if name in old and share - old[name] > AGREEMENT
    ]


def _shares(measurements: list[Measurement]) -> Mapping[str, float]:
    shares = {}
    for one in measurements:
        most = (one.bound or {}).get("at_most")
        if isinstance(most, int | float) and most > 0 and isinstance(one.value, int | float):
            shares[one.name] = one.value / most
    return shares


def _beyond(probe: str, what: str, before: float, after: float, tolerance: Tolerance) -> list[Worse]:
    if after <= before * tolerance.times or after - before <= tolerance.more:
        return []
    why = f"{tolerance.times:g} times and {tolerance.more:g} more: {tolerance.why}"
    return [Worse(probe, what, before, after, why)]
