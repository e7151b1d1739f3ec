"""The known vulnerabilities of a stack: which have a fix that fits beside everything else of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base.text import unlinked
from builder.lock import osv
from builder.lock.lockfile import Lock
from builder.lock.osv import Installed, Match
from builder.lock.renewal import Renewal
from builder.publish import purls
from builder.upgrade import outdated

SETTLED = ("not_affected", "fixed")  # in VEX


@dataclass(frozen=True)
class Exposure:
    """A vulnerability of a stack. `fit`: whether the fix fits, in words. `judged`: a person's word, one of VEX's."""

    match: Match
    purls: tuple[str, ...]
    fits: bool
    fit: str
    judged: str = ""

    @property
    def settled(self) -> bool:
        return self.judged in SETTLED

    @property
    def needs_a_person(self) -> bool:
        """Is there something to do, and did nobody say that it is not needed?"""
        return self.fits and not self.settled

    def __str__(self) -> str:
        thing = self.match.installed
        fixed = f"fixed in {self.match.fixed}: " if self.match.fixed else ""
        judgement = f" (VEX: {self.judged})" if self.judged else ""
        return f"{self.match.name}: {thing.name} {thing.version} ({self.match.affected}); {fixed}{self.fit}{judgement}"


def installed(lock: Lock, renewal: Renewal | None) -> list[Installed]:
    """What a lock installs, in the words of OSV. Without a mirror, Debian's sources are not known by name."""
    return osv.installed(lock, renewal.sources if renewal else {})


def of(
    lock: Lock, things: Iterable[Installed], matches: Sequence[Match], renewal: Renewal | None, scratch: Path
) -> list[Exposure]:
    """Those of the matches that are about a stack. Raises NetworkError."""
    own, names = set(things), purls.of(lock)
    answers: dict[tuple[str, str], tuple[bool, str]] = {}
    exposures = []
    for match in matches:
        thing = match.installed
        if thing not in own:
            continue
        question = thing.name, match.fixed
        if question not in answers:
            answers[question] = _fit(lock, match, renewal, scratch)
        kind = "pypi" if thing.ecosystem == osv.PYPI else "deb"
        exposures.append(Exposure(match, tuple(names[kind, name] for name in thing.packages), *answers[question]))
    return exposures


def _fit(lock: Lock, match: Match, renewal: Renewal | None, scratch: Path) -> tuple[bool, str]:
    """Does the fix fit, and why (not)?"""
    thing = match.installed
    if not match.fixed:
        return False, "no version is known to fix it"
    if thing.ecosystem == osv.PYPI:
        version, conflict = outdated.at_least(lock, thing.name, match.fixed, scratch)
        return (False, f"it does not fit: {conflict}") if conflict else (True, f"{thing.name} {version} fits")
    if renewal is None:
        return False, "whether the mirror has it is not known"
    new = next((fix.new for fix in renewal.fixes if fix.source == thing.name), thing.version)
    order = osv.ORDERS[osv.DEBIAN]
    if order(new) >= order(match.fixed):
        return True, f"a rebuild with today's Debian packages has {new}"
    return False, f"the mirror has {new}"


def lines(exposures: Sequence[Exposure], records: int) -> list[str]:
    """What there is to say of them: those with a fix one by one, the others together."""
    open_ = [exposure for exposure in exposures if not exposure.settled]
    sentences = [str(exposure) for exposure in open_ if exposure.match.fixed]
    if unfixed := [exposure for exposure in open_ if not exposure.match.fixed]:
        names = ", ".join(f"{each.match.name} ({each.match.installed.name})" for each in unfixed)
        sentences.append(f"without a fix: {names}")
    if settled := len(exposures) - len(open_):
        sentences.append(f"{settled} more are judged in VEX")
    return sentences or [f"no known vulnerability, in {records} records"]


def section(exposures: Sequence[Exposure], records: int) -> list[str]:
    """The same as a part of the verdict."""
    listed = [f"- {unlinked(line)}" for line in lines(exposures, records)]
    return ["## Known vulnerabilities", "", *listed, "", f"From {records} records of OSV.", ""]
