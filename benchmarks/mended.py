"""Does what a finding recommends mend a report? What it prints is read as a user would follow it.

The first command that installs something is what a user runs; where there is none, the first requirement of the
remedies. The index then gives the newest release in that range. It mends the report when that release is in the
confirmed `fixed`, or, where `fixed` is only one release that somebody tried, when it is outside `bad`.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from doctor.base import aliases, versions
from doctor.finding import Finding
from doctor.know import published
from doctor.know.data import Knowledge

REQUIREMENT = re.compile(
    r"(?<![\w.-])(?P<name>[A-Za-z][A-Za-z0-9_.-]*?)\s?(?P<range>(?:(?:===|[<>=!~]=|[<>])\s?[\w.*+!]+(?:,\s?)?)+)"
)
OPTIONS = ("--python", "--index-url", "--extra-index-url", "--torch-backend", "--prefix", "--target")


def recommended(finding: Finding) -> dict[str, str]:
    """The range that a finding recommends for each package; empty where it recommends to install nothing."""
    for command in finding.commands:
        wishes = _of_command(command)
        if wishes:
            return wishes
    for remedy in finding.remedy:
        wishes = _of_words(re.split(r",? or ", remedy)[0])
        if wishes:
            return wishes
    return {}


def _of_command(command: str) -> dict[str, str]:
    words = shlex.split(command)
    if "install" not in words:
        return {}
    rest, wishes = words[words.index("install") + 1 :], {}
    for before, word in zip(["", *rest], rest, strict=False):
        requirement = None if word.startswith("-") or before in OPTIONS else versions.requirement(word)
        if requirement is not None:
            wishes[aliases.normalise(requirement.name)] = str(requirement.specifier) or versions.ANY
    return wishes


def _of_words(text: str) -> dict[str, str]:
    ranges = ((match["name"], match["range"].strip(" ,").replace(" ", "")) for match in REQUIREMENT.finditer(text))
    return {aliases.normalise(name): range_ for name, range_ in ranges if versions.specifiers(range_) is not None}


def installs(package: str, range_: str, knowledge: Knowledge) -> str | None:
    """The release that the index gives for a range: the newest known one, or one that the range itself tells."""
    known = [*knowledge.requires(package), *published.releases(package)]
    final = [release for release in known if not (versions.parse(release) or versions.Version("0")).is_prerelease]
    fitting = [release for release in final if versions.allows(range_, release)]
    if not fitting:
        fitting = [version for version in versions.near(range_) if versions.allows(range_, version)]
    return max(fitting, key=lambda release: versions.parse(release) or versions.Version("0"), default=None)


def mends(finding: Finding, report: dict[str, Any], knowledge: Knowledge) -> bool:
    """Does following a finding install what is confirmed to work, for the reason that is confirmed?

    A finding that the error does not mention has the right reason only where nothing fails, or where a declared
    requirement is unmet.
    """
    silent = report.get("silent") and finding.sure
    if not finding.shown and report.get("error") and finding.rule != "requires-dist" and not silent:
        return False
    wishes = recommended(finding)
    mended = [_mended(culprit, finding, wishes, report, knowledge) for culprit in report.get("culprit") or []]
    return bool(mended) and (all(mended) if report.get("culprit_logic") == "all" else any(mended))


def _mended(
    culprit: dict[str, Any], finding: Finding, wishes: dict[str, str], report: dict[str, Any], knowledge: Knowledge
) -> bool:
    package = aliases.normalise(culprit["package"])
    fixed = [fix for fix in map(str.strip, str(culprit.get("fixed") or "").split(" or ")) if versions.specifiers(fix)]
    bad = str(culprit.get("bad") or versions.ANY)
    if not fixed:
        # A wheel that was built for something else: it is installed again, in whatever version.
        return package in finding.packages and finding.shown > 0 and bool(finding.remedy)
    if package not in wishes:
        return False
    stated = stated_versions(report).get(package, "")
    if stated and versions.within(wishes[package], stated) is True and versions.within(bad, stated) is not False:
        return False  # it recommends what is there already
    release = installs(package, wishes[package], knowledge)
    if release is None:
        return False
    if any(_in_fix(fix, release) for fix in fixed):
        return True
    tried = all(clause.operator in ("==", "===") for fix in fixed for clause in versions.specifiers(fix) or ())
    return tried and bad != versions.ANY and versions.specifiers(bad) is not None and not versions.allows(bad, release)


def _in_fix(fix: str, release: str) -> bool:
    """Is a release in a confirmed fix? "==1.26" is every 1.26."""
    family = re.fullmatch(r"==\s*(\d+\.\d+)", fix)
    return versions.allows(f"=={family[1]}.*" if family else fix, release)


def stated_versions(report: dict[str, Any]) -> dict[str, str]:
    """The versions that the author of a report stated, by package."""
    packages = report.get("packages")
    table = packages if isinstance(packages, dict) else {}
    return {aliases.normalise(name): str(version) for name, version in table.items() if version}
