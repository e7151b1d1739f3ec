"""What an interrupted or doubled installation left behind, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding


def look(case: Case) -> Iterator[Finding]:
    for where, what in case.environment.trouble[:20]:
        name = where[:80]
        twice = what.startswith("is there twice")
        plain = versions.name(name.partition("-")[0].lstrip("~"))
        yield Finding(
            "half-installed", f"{name} {what}", {plain: case.environment.version(plain)} if plain else {}, "resolve",
            "likely" if twice else "possible", ["its metadata, in the environment's own folder"],
            [f"remove {name} and install the package again" if not twice else f"install {plain} again"],
            decide=[] if twice else ["whether the package that it belongs to can be imported"],
        )  # fmt: skip
    for where, what in case.environment.unread:
        yield Finding(
            "unread", f"{where[:200]} {what}", {}, "unread", "likely",
            ["no environment that works looks like this"], [f"look at {where[:200]}, and make the environment anew"],
        )  # fmt: skip
