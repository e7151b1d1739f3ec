"""Is the suite red in older environments only for defects that are real? `python -m benchmarks.old_environments`

An environment is what a user got who installed a release of TRL some days after it was published, with today's torch
for the CPU; or the good twin of a control, patched as its lock says. The suite runs in each. A red probe is explained
where an advisory names that probe for those versions. Every other one is a false alarm, or a defect that nobody has
described yet. Nothing is kept: each environment is removed before the next.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import environments
from benchmarks.environments import DATES, release
from builder.base import project, sources
from builder.base.project import Project
from builder.certify import control, hostenv
from builder.certify.certificate import ProbeResult
from builder.intent import advisory, stack
from builder.intent.advisory import Advisory
from builder.pages import evidence
from builder.pages.old_environments import OldEnvironments

SHOWN = ("trl", "transformers", "accelerate", "peft")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints a row for each environment, returns 1 where a probe is red and no advisory says why."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.old_environments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a release of TRL, or a control; default: all")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/old-environments.json")
    options = parser.parse_args(arguments)
    home = project.find()
    every = (*DATES, *stack.control_names(home))
    if unknown := [name for name in options.names if name not in every]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(every)}")
    known, rows = advisory.load_all(home), []
    for name in options.names or every:
        rows.append(run(home, name, known))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.record:
            _record(home, rows)
    unexplained = sum(not red["advisories"] for row in rows for red in row["red"])
    red = sum(len(row["red"]) for row in rows)
    print(f"{unexplained} of {red} red probes in {len(rows)} environments have no advisory")
    return 1 if unexplained else 0


def run(home: Project, name: str, known: Iterable[Advisory]) -> dict[str, Any]:
    """Make an environment, run the suite in it, and say what is red, and which advisories say why."""
    with home.holding("old-environments") as scratch:
        begin = time.monotonic()
        with release(name, scratch) if name in DATES else _twin(home, name, scratch) as (environment, versions):
            results = environments.probed(versions, (), environment, home, scratch / "work")
        return {
            "name": f"TRL {name}" if name in DATES else f"twin of {name}",
            "date": DATES.get(name, ""),
            "versions": {package: versions[package] for package in SHOWN if package in versions},
            "passed": sum(result.outcome == "passed" for result in results),
            "not_run": sum(result.outcome == "not-run" for result in results),
            "red": red(results, versions, known),
            "seconds": round(time.monotonic() - begin, 1),
        }


@contextmanager
def _twin(home: Project, name: str, scratch: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """The twin of a control, and its versions."""
    lock = control.load(home, name).twin
    environment = hostenv.prepare(home, lock, scratch, lambda _: None, keep=False)
    try:
        yield environment, lock.versions
    finally:
        hostenv.remove(environment)


def red(results: Iterable[ProbeResult], versions: Mapping[str, str], known: Iterable[Advisory]) -> list[dict[str, Any]]:
    """The probes that are neither green nor left out, each with the advisories that name it for these versions."""
    matching = [record for record in known if record.matches(versions) != "no"]
    return [
        {
            "probe": result.name,
            "outcome": result.outcome,
            "reason": (result.reason or "")[:300],
            "advisories": [record.id for record in matching if result.name in record.probes],
        }
        for result in results
        if result.outcome not in ("passed", "not-run")
    ]


def _record(home: Project, rows: list[dict[str, Any]]) -> None:
    """Write the rows; those of environments that were not made now stay as they are, if the suite is the same."""
    before = evidence.read(home, OldEnvironments)
    same = before is not None and before.suite == sources.digest(home.smoke)
    kept = [row.model_dump() for row in before.rows] if before is not None and same else []
    ordered = {row["name"]: row for row in [*kept, *rows]}
    command = "python -m benchmarks.old_environments --record"
    with home.holding("old-environments") as scratch:
        evidence.record(home, OldEnvironments.FILE, command, {"rows": list(ordered.values())}, scratch)


if __name__ == "__main__":
    sys.exit(main())
