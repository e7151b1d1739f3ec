"""What the doctor knows: advisories and stacks (data.json), names by release (apis/), who uses them (uses/).

`vetted render` writes data.json; scripts/api_history.py and scripts/use_history.py write the others.
"""

from __future__ import annotations

import gzip
import json
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypedDict

from doctor.know import names_hash

NAME = re.compile("[:(.]")  # what stands before the last name of a fact


class Affected(TypedDict, total=False):
    """One known-bad combination: ranges by package, and conditions on the run."""

    packages: dict[str, str]
    context: dict[str, Any]


class Fix(TypedDict, total=False):
    """A way out: ranges by package, a note in words, or both."""

    packages: dict[str, str]
    note: str


class Advisory(TypedDict, total=False):
    """An advisory of the project (advisories/*.toml)."""

    id: str
    summary: str
    severity: str
    symptoms: list[str]  # patterns of what the error says
    hints: list[str]  # patterns of what points to it
    probes: list[str]  # of the suite: those that show it
    reasons: list[str]  # what these said on its controls
    affected: list[Affected]
    fix: list[Fix]
    evidence: dict[str, str]
    references: list[dict[str, str]]


class Stack(TypedDict):
    """A stack of the project, locked."""

    name: str
    title: str
    device: str
    python: str
    cuda: str
    certified: list[str]  # hardware; empty where nobody has certified it
    patches: list[str]
    overrides: list[str]
    versions: dict[str, str]
    hashes: dict[str, str]


@dataclass
class Api:
    """The names of one package: which came or went with which release. Only what is asked for is unpacked."""

    grouped: dict[str, dict[str, str]] = field(default_factory=dict)  # where: changes: names, as the file has them
    requires: dict[str, list[str]] = field(default_factory=dict)  # release: its Requires-Dist
    read: list[str] = field(default_factory=list)  # the releases whose names were read
    unread: list[str] = field(default_factory=list)  # those between the first and the last of these that were not
    newest: str = ""  # hashes of the names that the newest release has and that never came or went

    @cached_property
    def changes(self) -> dict[str, str]:
        """Each fact and its history, e.g. "+4.49.0 -5.0.0"."""
        return flat(self.grouped)

    @cached_property
    def _names_now(self) -> frozenset[bytes]:
        return names_hash.unpack(self.newest)

    def always(self, name: str) -> bool | None:
        """Has every release that was read a `module:name` that never came or went? False for none; None if unknown."""
        module, colon, last = name.partition(":")
        if not self.newest or not colon or not last or last.startswith("_"):
            return None
        if names_hash.of(name) in self._names_now:
            return True
        return None if names_hash.of(f"{module}:*") in self._names_now else False

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The facts by the name that they end in."""
        facts: dict[str, list[str]] = {}
        for fact in self.changes:
            facts.setdefault(NAME.split(fact)[-1], []).append(fact)
        return facts

    @cached_property
    def parameters(self) -> dict[str, dict[str, list[str]]]:
        """The parameters that came or went, with their changes, by class or function."""
        owners: dict[str, dict[str, list[str]]] = {}
        for fact, history in self.changes.items():
            owner, bracket, parameter = fact.partition("(")
            if bracket:
                owners.setdefault(owner, {})[parameter] = history.split()
        return owners


@dataclass
class Knowledge:
    """All that the checks look things up in."""

    advisories: list[Advisory] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    apis: dict[str, Api] = field(default_factory=dict)  # by package
    uses: dict[str, dict[str, str]] = field(default_factory=dict)  # by package: a name: the first release without it

    def requires(self, package: str) -> dict[str, list[str]]:
        """What every known release of a package declares to need."""
        return self.apis.get(package, Api()).requires


@cache
def load() -> Knowledge:
    """Everything that is packed with the doctor."""
    project = _read("data.json")
    apis = {package: _api(package) for package in read_index("apis")}
    uses = {package: _read(f"uses/{package}.json")["uses"] for package in read_index("uses")}
    return Knowledge(project["advisories"], project["stacks"], apis, uses)


def stacks() -> list[Stack]:
    """The stacks alone, which is quick."""
    known: list[Stack] = _read("data.json")["stacks"]
    return known


def read_index(folder: str) -> list[str]:
    """The packages of a folder with one file a package."""
    packages: list[str] = _read(f"{folder}/index.json")["packages"]
    return packages


def read_packed(folder: str, package: str) -> dict[str, Any]:
    """The file of a package."""
    return _read(f"{folder}/{package}.json.gz")


def _api(package: str) -> Api:
    entry = read_packed("apis", package)
    return Api(entry["changes"], entry["requires"], entry["read"], entry["unread"], entry.get("newest", ""))


def flat(grouped: dict[str, dict[str, str]]) -> dict[str, str]:
    """Each fact and its history. The file keeps the names of a module with the same history together."""
    return {
        where + name: history
        for where, histories in grouped.items()
        for history, names in histories.items()
        for name in names.split(" ")
    }


def _read(name: str) -> dict[str, Any]:
    """A file of this package: in a folder, or in the archive that is the single file."""
    content = pkgutil.get_data("doctor.know", name)
    assert content is not None
    parsed: dict[str, Any] = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    return parsed
