"""What an interrupted or doubled installation left behind, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.base import aliases
from doctor.case import Case
from doctor.finding import Finding

MOST = 20  # broken installations that are reported


def interrupted_installs(case: Case) -> Iterator[Finding]:
    """Packages that are there twice, or half."""
    for where, what in case.environment.broken[:MOST]:
        name = where[:80]
        twice = what.startswith("is there twice")
        package = aliases.normalise(name.partition("-")[0].lstrip("~"))
        yield Finding(
            rule="half-installed",
            title=f"{name} {what}",
            packages=case.versions(package),
            severity="resolve",
            confidence="likely" if twice else "possible",
            evidence=["its metadata in the site-packages folder"],
            remedy=[f"install {package} again" if twice else f"remove {name} and install the package again"],
            decide=[] if twice else ["whether the package can be imported"],
        )


def unread_files(case: Case) -> Iterator[Finding]:
    """Files of an environment that no one that works has, and what a list names that cannot be read."""
    listed = not case.environment.folders
    for where, what in case.environment.unread:
        place = where[:200]
        evidence = "what it names was not checked" if listed else "no environment that works looks like this"
        remedy = "give the environment itself (--python PATH), or its `pip freeze`"
        yield Finding(
            rule="unread",
            title=f"{place} {what}",
            packages={},
            severity="unread",
            confidence="possible" if listed else "likely",
            evidence=[evidence],
            remedy=[remedy if listed else f"look at {place}, and create the environment again"],
        )
