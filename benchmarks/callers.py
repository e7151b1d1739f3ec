"""Does the check of imports keep quiet on good environments, and how long does it take? `python -m benchmarks.callers`

    python -m benchmarks.callers --record NAME=ENVIRONMENT…

Looks at every environment twice: with an empty cache, and with what the first look kept. Each finding is recorded by
its title. One that is certain or likely is an alarm, for the environments are said to be good.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.base import project
from builder.pages import evidence
from doctor.case import Case
from doctor.checks import callers
from doctor.know import data
from doctor.know.data import Knowledge
from doctor.read import imports, pythons


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.callers", description=__doc__)
    parser.add_argument("environments", nargs="+", metavar="NAME=ENVIRONMENT")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/callers.json")
    options = parser.parse_args(arguments)
    knowledge, rows = data.load(), []
    for argument in options.environments:
        name, _, path = argument.partition("=")
        with tempfile.TemporaryDirectory() as cache:
            os.environ["XDG_CACHE_HOME"] = cache
            rows.append({"name": name, **measure(path, knowledge)})
        print(rows[-1], file=sys.stderr)
    measured = {"environments": rows, **summary(rows)}
    if options.record:
        names = " ".join(argument.partition("=")[0] + "=…" for argument in options.environments[:1])
        command = f"python -m benchmarks.callers --record {names}"
        with tempfile.TemporaryDirectory() as scratch:
            home = project.find()
            evidence.store(home, "callers", {**evidence.head(command), **measured}, Path(scratch))
    print(summary(rows))
    return 1 if measured["alarms"] else 0


def measure(path: str, knowledge: Knowledge) -> dict[str, Any]:
    """One environment: its packages, its sources, the seconds of both looks, the findings."""
    environment = pythons.of_path(path)
    case = Case(environment, knowledge=knowledge)
    seconds = []
    for _ in range(2):
        begin = time.process_time()
        findings = list(callers.missing_imports(case))
        seconds.append(round(time.process_time() - begin, 2))
    known = (imports.sources(package) for package in environment.packages.values())
    return {
        "packages": len(environment.packages),
        "sources": sum(len(own.python) for own in known if own is not None),
        "seconds": seconds[0],
        "seconds_again": seconds[1],
        "certain": [finding.title for finding in findings if finding.sure],
        "may_apply": [finding.title for finding in findings if not finding.sure],
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The numbers that the documents quote."""
    return {
        "count": len(rows),
        "alarms": sum(len(row["certain"]) for row in rows),
        "quiet": sum(not row["certain"] and not row["may_apply"] for row in rows),
        "slowest_s": max(row["seconds"] for row in rows),
        "slowest_again_s": max(row["seconds_again"] for row in rows),
    }


if __name__ == "__main__":
    sys.exit(main())
