"""A module that is not ready when it is imported: a file of the user's hides the package, or the package is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases
from doctor.case import Case
from doctor.finding import EXPLAINS, POINTS, Finding
from doctor.know import history

CIRCULAR = re.compile(
    r"(?:cannot import name '(?P<name>\w+)' from )?partially initialized module '(?P<module>[\w.]+)'"
    r"(?: has no attribute '(?P<member>\w+)')?(?:[^\n(]*\(most likely due to a circular import\))?"
    r"(?: \((?P<file>[^\n()]{1,400})\))?"
)
INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib[\\/]python\d")


def circular_imports(case: Case) -> Iterator[Finding]:
    """The last one, of a package that is known."""
    matches = [match for match in CIRCULAR.finditer(case.error) if _is_known(case, match["module"])]
    for match in matches[-1:]:
        if match["file"] and not INSTALLED.search(match["file"]):
            yield _hidden(match)
        elif not match["file"] and "." not in match["module"]:
            yield _hidden(match, sure=False)
        elif since := _since(case, match) or case.version(aliases.of_module(match["module"])):
            yield _broken(case, match, since)


def _is_known(case: Case, module: str) -> bool:
    package = aliases.of_module(module)
    return package in case.knowledge.apis or case.version(package) is not None


def _hidden(match: re.Match[str], *, sure: bool = True) -> Finding:
    package, top = aliases.of_module(match["module"]), match["module"].partition(".")[0]
    file = match["file"] if sure else f"{top}.py, or a folder {top},"
    return Finding(
        rule="hidden-package",
        title=f"your own file {file} hides {package}: Python imports it in the package's place",
        packages={},
        severity="crash",
        confidence="certain" if sure else "possible",
        evidence=[f"the error says: {match.group()}"],
        remedy=["give it another name, and remove the __pycache__ beside it"],
        decide=[] if sure else [f"whether a {top}.py or a folder {top} is beside your script"],
        setting=True,
        shown=EXPLAINS,
        weight=1.0,
    )


def _since(case: Case, match: re.Match[str]) -> str:
    """The release that brought a module or name that the package cannot import from itself; "" where it is older."""
    package, module = aliases.of_module(match["module"]), match["module"]
    for text in (f"{module}:", f"{module}:{match['name'] or match['member']}"):
        fact = history.exact(case.knowledge.apis, text, package)
        if fact is not None and fact.since and fact.in_release(case.version(package) or fact.since) is not False:
            return fact.since
    return ""


def _broken(case: Case, match: re.Match[str], since: str) -> Finding:
    package = aliases.of_module(match["module"])
    version = case.version(package)
    return Finding(
        rule="circular-import",
        title=f"{package} {version or ''} cannot import {match['module']} from itself".replace("  ", " "),
        packages={package: version},
        severity="crash",
        confidence="possible",
        evidence=[
            f"the error says: {match.group()[:200]}",
            f"{package} has {match['module']} since {since}"
            if since != version
            else "what nobody can import is fixed soon",
        ],
        remedy=[f"{package}<{since}, the one before", f"or a later release of {package}"],
        decide=[f"whether `python -c 'import {match['module']}'` fails alone: then it is {package}, not your code"],
        ranges={package: [f">={since}"]},
        shown=POINTS,
        weight=0.4,
    )
