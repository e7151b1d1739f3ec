"""A package was built from source, and its build failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases
from doctor.case import Case
from doctor.checks import fitting
from doctor.finding import EXPLAINS, Finding

NAMED = re.compile(
    r"(?:Failed to (?:download and )?build|Failed building wheel for|Could not build wheels for)"
    r"(?: installable wheels for some pyproject\.toml based projects)?"
    r"[ `'\"(]+(?P<name>[A-Za-z][\w.-]*)(?=[`'\"),=]|\s*$| when )",
    re.MULTILINE,
)
UNNAMED = re.compile(
    r"(?:Getting requirements to build wheel|setup\.py egg_info|Preparing metadata)[^\n]* did not run succ"
)
COLLECTED = re.compile(
    r"^\s*(?:Collecting (?P<name>[A-Za-z][\w.-]*)(?=[\s\[=<>~!;(@]|$)|Processing |Collecting )", re.MULTILINE
)
# What the setup.py of an extension imports, and does not declare to need.
ISOLATED = re.compile(r"ModuleNotFoundError: No module named '(?P<module>torch|packaging|psutil|ninja|numpy|wheel)'")
GIVEN = re.compile(r"(?:install|add)\b[^\n]* --no-build-isolation")  # pip then builds in the environment itself
KILLED = re.compile(r"Killed signal terminated program \w+|\b(?:cicc|cc1plus|nvcc|ptxas)\b[^\n]{0,80}\bKilled\b")


def failed_builds(case: Case) -> Iterator[Finding]:
    """What makes the build succeed, or a release that needs none."""
    name = failed(case.error)
    if name is None:
        return
    isolated, killed = ISOLATED.search(case.error), KILLED.search(case.error)
    if isolated and GIVEN.search(case.error):
        return
    if isolated:
        yield _isolated(case, name, isolated)
    elif killed:
        yield _killed(case, name, killed)
    elif name == "flash-attn":
        yield _without_wheel(case, name)


def failed(error: str) -> str | None:
    """The distribution whose build the text says to have failed; the last one."""
    named = list(NAMED.finditer(error))
    if named:
        return aliases.normalise(named[-1]["name"].rstrip("."))
    unnamed = UNNAMED.search(error)
    collected = list(COLLECTED.finditer(error, 0, unnamed.start())) if unnamed else []
    return aliases.normalise(collected[-1]["name"]) if collected and collected[-1]["name"] else None


def in_isolation(error: str, module: str) -> bool:
    """Is a module missing only where pip builds, apart from the environment?"""
    return (
        failed(error) is not None
        and not GIVEN.search(error)
        and any(match["module"] == module for match in ISOLATED.finditer(error))
    )


def _isolated(case: Case, name: str, match: re.Match[str]) -> Finding:
    module = match["module"]
    wheels = fitting.with_wheel(case, name) or ""
    absent = module != "torch" or (case.environment.complete and case.version("torch") is None)
    return Finding(
        rule="build-isolation",
        title=f"pip builds {name} in a separate environment, which has no {module}",
        packages=case.versions(name, module),
        severity="crash",
        confidence="likely",
        evidence=[f"the error says: {match.group()}", f"{name} does not declare that its build needs {module}"],
        remedy=[f"install {module} first, then {name} without build isolation"],
        commands=[
            *([f"uv pip install {module}"] if absent else []),
            f"uv pip install --no-build-isolation '{name}{wheels}'",
        ],
        setting=True,
        shown=EXPLAINS,
        weight=1.0,
    )


def _killed(case: Case, name: str, match: re.Match[str]) -> Finding:
    return Finding(
        rule="build-memory",
        title=f"compiling {name} ran out of memory: too many jobs at once",
        packages=case.versions(name),
        severity="crash",
        confidence="likely",
        evidence=[f"the error says: {match.group()}"],
        remedy=["set MAX_JOBS=2 and install again", *fitting.remedies(case, name)],
        setting=True,
        shown=EXPLAINS,
        weight=1.0,
    )


def _without_wheel(case: Case, name: str) -> Finding:
    """It has wheels on its releases page, which its setup.py takes if one is for the installed torch."""
    unstated = [package for package in (name, "torch") if case.version(package) is None]
    fits = fitting.has_wheel(case, name)
    return Finding(
        rule="no-wheel",
        title=f"building {name} {case.version(name) or ''}".strip() + " from source failed",
        packages=case.versions(name, "torch"),
        severity="crash",
        confidence="possible" if unstated or fits else "likely",
        evidence=["the error says that its build failed"],
        remedy=fitting.remedies(case, name, another=not fits),
        commands=fitting.commands(case, name, another=not fits) if case.version("torch") else [],
        decide=[f"which {' and which '.join(unstated)} is installed"] if unstated else [],
        shown=EXPLAINS,
        weight=0.5,
    )
