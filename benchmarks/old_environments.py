"""Is the suite red in older environments only for defects that are real? `python -m benchmarks.old_environments`

An environment is what a user got who installed a release of TRL some days after it was published, with today's torch
for the CPU; or the good twin of a control, patched as its lock says. The suite runs in each. A red probe is explained
where an advisory names that probe for those versions. Every other one is a false alarm, or a defect that nobody has
described yet. Nothing is kept: each environment is removed before the next.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from benchmarks import environments
from builder.base import machine, project, sources
from builder.base.project import Project
from builder.certify import control, hostenv
from builder.certify.certificate import ProbeResult
from builder.intent import advisory, stack
from builder.intent.advisory import Advisory
from builder.pages import evidence
from builder.pages.old_environments import OldEnvironments

# Releases of TRL, and the day up to which everything else was published.
DATES = {
    "0.16.1": "2025-04-06",
    "0.17.0": "2025-04-26",
    "0.18.2": "2025-06-17",
    "0.19.1": "2025-07-10",
    "0.21.0": "2025-08-07",
    "0.23.1": "2025-10-04",
    "0.25.1": "2025-11-14",
    "0.27.2": "2026-02-05",
    "0.29.0": "2026-02-27",
    "1.2.0": "2026-04-19",
    "1.4.0": "2026-05-10",
    "1.6.0": "2026-06-13",
    "1.9.0": "2026-07-24",
    "1.12.0": "2026-08-28",
    "1.14.2": "2026-10-08",
}
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
        with _release(name, scratch) if name in DATES else _twin(home, name, scratch) as (environment, versions):
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
def _release(release: str, scratch: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A release as it was installed on its day, and its versions; it lies in the scratch folder and goes with it."""
    environment = scratch / "environment"
    # A list of torch's own wheels has no dates.
    when = ("--exclude-newer", DATES[release], "--exclude-newer-package", "torch=false")
    environments.make(environment, *when, f"trl=={release}", "peft", "jinja2", "rich", "setuptools")
    argv = [machine.uv_binary(), "pip", "list", "--format", "json", "--python", str(environment / "bin" / "python")]
    listed = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    yield environment, {canonicalize_name(row["name"]): row["version"] for row in listed}


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
