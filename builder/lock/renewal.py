"""What a rebuild with today's Debian packages would fix: newer versions, and the CVEs that their changelogs name.

Debian's fixes for a release are new versions of its packages. Their changelogs, which are in the packages, say which
vulnerabilities each version is for. What nobody wrote there is not found here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from builder.base.project import Project
from builder.lock import debian
from builder.lock.apt import Apt, plain_path, sources
from builder.lock.lockfile import Entry, Lock, source_version

if TYPE_CHECKING:
    from debian.changelog import Changelog

CVE = re.compile(r"\bCVE-[0-9]{4}-[0-9]{4,}\b")
SOURCE = re.compile(r"(?P<name>\S+)(?: \((?P<version>\S+)\))?")


@dataclass(frozen=True)
class Offer:
    """What the mirror has of a package, and of which source and version it is made."""

    entry: Entry
    source: str
    source_version: str
    size: int

    def locked_source(self, locked: Entry) -> str:
        """The version of the source that an older package was made of; "" where packages are counted otherwise."""
        own, then = source_version(self.entry.version), source_version(locked.version)
        if own == self.source_version:
            return then
        bare, epoch = _without_epoch(own), self.source_version.removesuffix(_without_epoch(self.source_version))
        return epoch + _without_epoch(then) if bare == _without_epoch(self.source_version) else ""


@dataclass(frozen=True)
class Fix:
    """The newer packages of one source: its locked and its newest version, and the CVEs that the changelog names in
    between. `unknown`: why the changelog does not say."""

    source: str
    old: str
    new: str
    packages: tuple[str, ...]
    cves: tuple[str, ...] = ()
    unknown: str = ""

    def __str__(self) -> str:
        what = f"{self.source} {self.old} → {self.new}"
        if self.cves:
            return f"a rebuild with today's Debian packages fixes {', '.join(self.cves)} ({what})"
        return f"{what}: {self.unknown or 'its changelog names no CVE'}"


@dataclass(frozen=True)
class Renewal:
    """What is newer than the lock. `sources`: of each locked package, the source and its locked version."""

    fixes: tuple[Fix, ...]
    sources: Mapping[str, tuple[str, str]]
    note: str = ""

    @property
    def fixing(self) -> list[Fix]:
        """Those of which a CVE is known."""
        return [fix for fix in self.fixes if fix.cves]


def of(project: Project, lock: Lock, scratch: Path) -> Renewal:
    """Compare a lock with the mirror of today. Raises NetworkError, and MissingToolError without apt."""
    security = f"{lock.stack.debian}-security"
    note = "" if security in sources(lock.stack.debian).split() else f"no mirror of {security} was asked"
    with plain_path(scratch) as folder:
        apt = Apt(folder / "apt-renewal", lock.stack)
        offers = {offer.entry.name: offer for offer in map(_offer, apt.newest({e.name for e in lock.debian})) if offer}
        newer = [entry for entry in lock.debian if entry.name in offers and _newer(offers[entry.name], entry)]
        groups: dict[str, list[Entry]] = {}
        for entry in newer:
            groups.setdefault(offers[entry.name].source, []).append(entry)
        fixes = [_fix(project, apt, entries, offers, scratch) for _, entries in sorted(groups.items())]
    gone = sorted(entry.name for entry in lock.debian if entry.name not in offers)
    note = "; ".join(part for part in (note, f"the mirror has no {', '.join(gone)}" if gone else "") if part)
    return Renewal(tuple(fixes), dict(_sources(lock.debian, offers)), note)


def _sources(entries: Sequence[Entry], offers: Mapping[str, Offer]) -> Iterator[tuple[str, tuple[str, str]]]:
    for entry in entries:
        if offer := offers.get(entry.name):
            yield entry.name, (offer.source, offer.locked_source(entry))


def _offer(fields: Mapping[str, str]) -> Offer | None:
    try:
        entry = Entry(fields["Package"], fields["Version"], fields["SHA256"])
        source = SOURCE.fullmatch(fields.get("Source", entry.name))
        if source is None:
            return None
        return Offer(entry, source["name"], source["version"] or entry.version, int(fields["Size"]))
    except (KeyError, ValueError):
        return None


def _newer(offer: Offer, locked: Entry) -> bool:
    from debian.debian_support import Version  # this takes half a second

    return Version(offer.entry.version) > Version(locked.version)


def _fix(project: Project, apt: Apt, entries: Sequence[Entry], offers: Mapping[str, Offer], scratch: Path) -> Fix:
    """What is new in one source. Its changelog is in one of its packages: the smallest that has it is read."""
    first = offers[entries[0].name]
    old = first.locked_source(entries[0])
    fix = Fix(first.source, old or entries[0].version, first.source_version, tuple(entry.name for entry in entries))
    if not old:
        return replace(fix, unknown="its packages are counted otherwise than its changelog")
    for offer in sorted((offers[entry.name] for entry in entries), key=lambda offer: offer.size):
        changelog = _changelog(project, apt, offer.entry, scratch)
        if changelog is not None:
            return replace(fix, cves=tuple(_cves_since(changelog, old)))
    return replace(fix, unknown="none of its packages has a changelog")


def _changelog(project: Project, apt: Apt, entry: Entry, scratch: Path) -> Changelog | None:
    """The changelog in a package, which is downloaded once and then kept: a rebuild needs it, too."""
    from debian.debfile import DebError, DebFile

    path = debian.kept(project, entry)
    if not debian.is_kept(path, entry):
        path.parent.mkdir(parents=True, exist_ok=True)
        (downloads := scratch / "renewal").mkdir(exist_ok=True)
        debian.keep(apt.download([entry], downloads), {entry: path})
    with DebFile(str(path)) as package:
        try:
            return package.changelog()
        except (DebError, OSError, EOFError):
            return None


def _cves_since(changelog: Changelog, version: str) -> list[str]:
    """The CVEs that a changelog names in the versions after this one."""
    from debian.debian_support import Version

    newer = itertools.takewhile(lambda block: block.version > Version(version), changelog)
    return sorted({cve for block in newer for cve in CVE.findall("\n".join(block.changes()))}, key=_number)


def _number(cve: str) -> tuple[int, int]:
    _, year, number = cve.split("-")
    return int(year), int(number)


def _without_epoch(version: str) -> str:
    return version.partition(":")[2] or version
