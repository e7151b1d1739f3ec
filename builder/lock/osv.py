"""Known vulnerabilities of what a lock installs, from an export of OSV that the user brings: no database ships with us.

A folder of OSV records (https://ossf.github.io/osv-schema/), as files or in the `all.zip` of an ecosystem. Evaluated by
the schema's own rules: packaging orders versions of PyPI, python-debian those of Debian. What cannot be compared counts
as affected, and says so.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ValidationError

from builder.base import errors, reading
from builder.lock.lockfile import Lock

PYPI, DEBIAN = "PyPI", "Debian"
RELEASES = {"bookworm": "12", "trixie": "13"}  # OSV says "Debian:12"
LARGEST = 16 << 20  # bytes of one record
ENDS = {"fixed", "last_affected", "limit"}


class _Package(BaseModel):
    ecosystem: str
    name: str


class _Range(BaseModel):
    type: str
    events: list[dict[str, str]]


class _Affected(BaseModel):
    package: _Package | None = None
    ranges: list[_Range] = []
    versions: list[str] = []


class _Record(BaseModel):
    id: str
    aliases: list[str] = []
    upstream: list[str] = []
    summary: str = ""
    withdrawn: str | None = None
    affected: list[_Affected] = []


@dataclass(frozen=True)
class Installed:
    """A distribution, or the Debian packages of one source, in the words of OSV. `version`: without local parts.

    `release`: of Debian, "12".
    """

    ecosystem: str
    name: str
    version: str
    packages: tuple[str, ...]
    release: str = ""


@dataclass(frozen=True)
class Match:
    """A vulnerability of something installed. `names`: of all records about it, a CVE first.

    `fixed`: the version that fixes it, "" where none is named. `affected`: the ranges, in words.
    """

    names: tuple[str, ...]
    installed: Installed
    affected: str
    fixed: str
    summary: str

    @property
    def name(self) -> str:
        return self.names[0]


Order = Callable[[str], Any]


def installed(lock: Lock, sources: Mapping[str, tuple[str, str]]) -> list[Installed]:
    """What a lock installs. `sources`: of Debian packages, the source and its version, as far as they are known."""
    distributions = [
        Installed(PYPI, entry.name, entry.version.partition("+")[0], (entry.name,)) for entry in lock.python
    ]
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in lock.debian:
        source, version = sources.get(entry.name, ("", ""))
        groups.setdefault((source or entry.name, version or entry.version), []).append(entry.name)
    release = RELEASES[lock.stack.debian]
    return distributions + [Installed(DEBIAN, *key, tuple(names), release) for key, names in sorted(groups.items())]


def matches(folder: Path, things: Iterable[Installed]) -> tuple[list[Match], int]:
    """The vulnerabilities of these in an export, and the number of records that it has. Raises BadInputError."""
    targets: dict[tuple[str, str], list[Installed]] = {}
    for thing in things:
        targets.setdefault((thing.ecosystem, thing.name), []).append(thing)
    matched: list[Match] = []
    count = 0
    for where, document in _documents(folder):
        count += 1
        if not document.get("withdrawn") and _concerns(document, targets):
            try:
                record = _Record.model_validate(document)
            except ValidationError as error:
                raise _bad(where, f"no OSV record: {error.errors(include_url=False)[0]['msg']}") from error
            matched += _of(record, targets)
    if not count:
        raise errors.BadInputError(
            f"{folder} has no OSV record",
            cause="OSV's exports are one all.zip for each ecosystem",
            next_step="docs/how-to/watch.md says where to get them",
        )
    return _merged(matched), count


def _documents(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not folder.is_dir():
        raise errors.BadInputError(f"{folder} is no folder", next_step="docs/how-to/watch.md says what it holds")
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".json":
            yield str(path), _parsed(str(path), reading.content(path, str(path), most=LARGEST))
        elif path.suffix == ".zip":
            yield from _zipped(path)


def _zipped(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".json"):
                    where = f"{path}: {member.filename}"
                    if member.file_size > LARGEST:
                        raise _bad(where, "too large for an OSV record")
                    yield where, _parsed(where, archive.read(member))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise _bad(str(path), f"not a zip file: {error}") from error


def _parsed(where: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _bad(where, f"not JSON: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("id"), str):
        raise _bad(where, "no OSV record: it has no id")
    return document


def _bad(where: str, what: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"{where}: {what}", cause="the export was cut short, or the folder has other files", next_step="export it anew"
    )


def _concerns(document: Mapping[str, Any], targets: Mapping[tuple[str, str], object]) -> bool:
    """Does a record name something that is installed? Validating all of them would take minutes."""
    affected = document.get("affected")
    packages = [entry.get("package") for entry in affected if isinstance(entry, dict)] if affected else []
    return any(isinstance(each, dict) and _key(each.get("ecosystem"), each.get("name")) in targets for each in packages)


def _key(ecosystem: object, name: object) -> tuple[str, str]:
    kind = str(ecosystem).partition(":")[0]
    return kind, canonicalize_name(str(name)) if kind == PYPI else str(name)


def _of(record: _Record, targets: Mapping[tuple[str, str], Sequence[Installed]]) -> Iterator[Match]:
    for affected in record.affected:
        if affected.package is None:
            continue
        kind, _, release = affected.package.ecosystem.partition(":")
        for thing in targets.get(_key(kind, affected.package.name), ()):
            if release and thing.release and release != thing.release:
                continue
            judged = _judge(affected, thing.version, ORDERS[kind])
            if judged is not None:
                names = sorted({record.id, *record.aliases, *record.upstream}, key=_rank)
                yield Match(tuple(names), thing, *judged, record.summary)


def _rank(name: str) -> tuple[bool, str]:
    return not name.startswith("CVE-"), name


def _judge(affected: _Affected, version: str, order: Order) -> tuple[str, str] | None:
    """The ranges in words and the version that fixes it; None where the version is not affected."""
    hit, words, fixes = any(_same(version, each, order) for each in affected.versions), [], []
    for range_ in affected.ranges:
        if range_.type == "GIT":
            continue
        words.append(_words(range_.events))
        fixes += [event["fixed"] for event in range_.events if "fixed" in event]
        try:
            hit |= _inside(range_.events, order(version), order)
        except ValueError as error:
            return f"not comparable: {error}", ""
    if not hit:
        return None
    try:
        later = sorted((each for each in fixes if order(each) > order(version)), key=order)
    except ValueError as error:
        return f"not comparable: {error}", ""
    return " or ".join(words) or "the listed versions", later[0] if later else ""


def _inside(events: Sequence[Mapping[str, str]], version: Any, order: Order) -> bool:
    """OSV's own evaluation: events in the order of their versions, the last one that applies decides."""
    pairs = [(kind, value) for event in events for kind, value in event.items() if kind in ENDS | {"introduced"}]
    begun = [value for kind, value in pairs if kind == "introduced" and value == "0"]
    # At one version an end comes first: where a record contradicts itself, it counts as affected.
    ordered = sorted(
        ((order(value), kind == "introduced", kind) for kind, value in pairs if value not in ("0", "*")),
        key=lambda event: event[:2],
    )
    inside = bool(begun)
    for at, begins, kind in ordered:
        if begins and version >= at:
            inside = True
        elif not begins and (version > at if kind == "last_affected" else version >= at):
            inside = False
    return inside


def _same(version: str, other: str, order: Order) -> bool:
    try:
        return bool(order(version) == order(other))
    except ValueError:
        return version == other


def _words(events: Sequence[Mapping[str, str]]) -> str:
    signs = {"introduced": ">=", "fixed": "<", "last_affected": "<=", "limit": "<"}
    parts = [f"{signs[kind]}{value}" for event in events for kind, value in event.items() if kind in signs]
    shown = [part for part in parts if part not in (">=0", "<*")]
    return ",".join(shown) or "all versions"


def _pypi(version: str) -> Version:
    try:
        return Version(Version(version).public)
    except InvalidVersion as error:
        raise ValueError(str(error)) from error


def _debian(version: str) -> Any:
    from debian.debian_support import Version as DebianVersion  # this takes half a second

    return DebianVersion(version)


ORDERS: dict[str, Order] = {PYPI: _pypi, DEBIAN: _debian}


def _merged(entries: Iterable[Match]) -> list[Match]:
    """One for each vulnerability of a package: several databases have records of the same, under names of their own."""
    merged: list[Match] = []
    for match in entries:
        for other in [each for each in merged if each.installed == match.installed and {*each.names} & {*match.names}]:
            merged.remove(other)
            match = _both(other, match)
        merged.append(match)
    return sorted(merged, key=lambda match: (not match.fixed, match.installed.name, match.names))


def _both(left: Match, right: Match) -> Match:
    """What two records say of the same; of two fixes the later, which fixes both."""
    order = ORDERS[left.installed.ecosystem]
    fixed = max((each.fixed for each in (left, right) if each.fixed), key=order, default="")
    names = tuple(sorted({*left.names, *right.names}, key=_rank))
    words = " or ".join(dict.fromkeys((left.affected, right.affected)))
    return Match(names, left.installed, words, fixed, left.summary or right.summary)
