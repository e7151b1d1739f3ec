"""What the doctor knows: advisories and stacks (data.json), names and fixes by release (apis.json.gz, fixes.json).

`vetted render` writes data.json; scripts/api_history.py and scripts/fix_history.py write the others.
"""

from __future__ import annotations

import gzip
import json
import pkgutil
import re
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, TypedDict

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

    @cached_property
    def changes(self) -> dict[str, str]:
        """Each fact and its history, e.g. "+4.49.0 -5.0.0"."""
        return flat(self.grouped)

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The facts by the name that they end in."""
        facts: dict[str, list[str]] = {}
        for fact in self.changes:
            facts.setdefault(NAME.split(fact)[-1], []).append(fact)
        return facts


class PastFix(NamedTuple):
    """A change that called itself a fix: its number, the first release with it, the telling words of its title."""

    number: int
    release: str
    words: str


@dataclass
class Knowledge:
    """All that the checks look things up in."""

    advisories: list[Advisory] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    apis: dict[str, Api] = field(default_factory=dict)  # by package
    fixes: dict[str, list[PastFix]] = field(default_factory=dict)  # by package

    def requires(self, package: str) -> dict[str, list[str]]:
        """What every known release of a package declares to need."""
        return self.apis.get(package, Api()).requires


@cache
def load() -> Knowledge:
    """Everything that is packed with the doctor."""
    project = _read("data.json")
    apis = {package: Api(api["changes"], api["requires"]) for package, api in _read("apis.json.gz").items()}
    fixes = {package: [PastFix(*row) for row in rows] for package, rows in _read("fixes.json").items()}
    return Knowledge(project["advisories"], project["stacks"], apis, fixes)


def stacks() -> list[Stack]:
    """The stacks alone, which is quick."""
    known: list[Stack] = _read("data.json")["stacks"]
    return known


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
