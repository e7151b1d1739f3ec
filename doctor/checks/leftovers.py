"""What an interrupted or doubled installation left behind, and what could not be read.

A configuration that is damaged, one that says nothing, and a Python that does not answer are each a fact of their own:
a new environment mends none of the files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from doctor.base import aliases
from doctor.case import Case
from doctor.finding import EXPLAINS, SILENT, Finding

MOST = 20  # broken installations that are reported
PARSERS = re.compile(
    r"yaml\.(?:scanner|parser|reader|composer)|(?:Scanner|Parser)Error\b|JSONDecodeError|TOMLDecodeError"
)


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


def damaged_configurations(case: Case) -> Iterator[Finding]:
    """Configurations that no program parses: the run ends before it begins, in whatever environment."""
    shown = EXPLAINS if PARSERS.search(case.error) else SILENT
    for where, what in case.context.damaged[:MOST]:
        yield Finding(
            rule="damaged-configuration",
            title=f"{where[:200]} {what}",
            packages={},
            severity="crash",
            confidence="certain",
            evidence=["its text: no program that reads such a file gets past this; the environment has no part in it"],
            remedy=[f"mend {where[:200]} there, or take the last good version of it (git checkout, a backup)"],
            shown=shown,
        )


def blank_configurations(case: Case) -> Iterator[Finding]:
    """Configurations that state nothing: another file was meant, or its settings lie elsewhere."""
    for where, what in case.context.blank[:MOST]:
        yield Finding(
            rule="unread",
            title=f"{where[:200]} {what}",
            packages={},
            severity="unread",
            confidence="possible",
            evidence=["what it names was not checked"],
            remedy=["name the file that the run reads: --config FILE; or its command: --launch COMMAND"],
        )


def silent_pythons(case: Case) -> Iterator[Finding]:
    """The Python that was named, where it does not answer: nothing is known of its packages then."""
    if case.context.silent is not None:
        where, what = case.context.silent
        yield Finding(
            rule="silent-python",
            title=f"{where[:200]} does not answer like a Python: it {what}",
            packages={},
            severity="crash",
            confidence="certain",
            evidence=["it was run to say where its packages are; nothing of its environment was looked at"],
            remedy=[
                f"see what it says: {shlex.quote(where[:200])} -I -S -c 'print(1)'",
                "or give the folder of the environment (--python FOLDER), or its `pip freeze` (--requirements FILE)",
            ],
        )
