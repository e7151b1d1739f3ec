"""What does the run monitor say in older releases of TRL? `python -m benchmarks.monitor_releases [--record]`

Each release is installed with everything else as it was some days after it was published, and today's torch for the
CPU. In it there are the same tiny runs as in benchmarks/monitor.py: healthy ones over the options that the release
knows, and one for each fault. A check that raises an alarm in a healthy run is explained where one of its advisories
is about those versions: then the release has the defect. vLLM is a stand-in. Environments are removed again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks import environments, monitor
from benchmarks.environments import DATES
from benchmarks.monitored import faults, healthy
from builder.base import errors, project, sources
from builder.base.project import Project
from builder.intent import advisory
from builder.intent.advisory import Advisory
from builder.pages import evidence, generate
from builder.pages.monitor_releases import MonitorReleases
from runtime.monitor import judge
from runtime.monitor.checks import CHECKS

SHOWN = ("trl", "transformers", "accelerate", "peft")
NEEDS = {check.name: check.needs for check in CHECKS}
ADVISORIES = {check.name: check.advisories for check in CHECKS}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: returns 1 where an alarm has no advisory, or a fault that the monitor looks for is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.monitor_releases", description=__doc__)
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="a release of TRL; default: all")
    parser.add_argument("--runs", type=int, default=20, help="runs over the options, in each release")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/monitor-releases.json")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.releases if name not in DATES]:
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(DATES)}")
    home = project.find()
    known, rows = advisory.load_all(home), []
    for release in options.releases or DATES:
        rows.append(run(home, release, options.runs, known))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if options.record:
            _record(home, options.runs, rows)
    unexplained = [f"{row['trl']}: {alarm['check']}" for row in rows for alarm in row["alarms"] if not alarm["why"]]
    missed = [f"{row['trl']}: {name}" for row in rows for name in row["missed"]]
    noticed = sum(len(row["noticed"]) for row in rows)
    print(f"{len(unexplained)} alarms without an advisory in {sum(row['runs'] for row in rows)} healthy runs")
    print(f"{noticed} of {noticed + len(missed)} faults noticed; others do not exist there or are not visible")
    print("\n".join([*unexplained, *missed]), file=sys.stderr)
    return 1 if unexplained or missed else 0


def run(home: Project, release: str, runs: int, known: Iterable[Advisory]) -> dict[str, Any]:
    """All runs in one release."""
    jobs = [*healthy.jobs(runs), *map(faults.job, faults.FAULTS)]
    with home.holding("monitor-releases") as scratch, environments.release(release, scratch) as (environment, versions):
        results = {each["name"]: each for each in monitor.run(environment / "bin" / "python", jobs, {})}
    return {
        "trl": release, "date": DATES[release],
        "versions": {package: versions[package] for package in SHOWN if package in versions},
        **healthy_runs([results[job["name"]] for job in jobs[:runs]], versions, known),
        **injected({name: results[name] for name in faults.FAULTS}),
    }  # fmt: skip


def healthy_runs(
    results: Iterable[Mapping[str, Any]], versions: Mapping[str, str], known: Iterable[Advisory]
) -> dict[str, Any]:
    """How many runs trained and had something to learn, why others did not, and the alarms, with the advisories."""
    here = {record.id for record in known if record.matches(versions) != "no"}
    trained, refused, alarms = 0, dict[str, int](), dict[str, int]()
    for result in results:
        if reason := reason_of_no_run(result):
            refused[reason] = refused.get(reason, 0) + 1
            continue
        trained += 1
        for check in _alarms(result):
            alarms[check] = alarms.get(check, 0) + 1
    return {
        "runs": trained, "refused": refused,
        "alarms": [
            {"check": check, "runs": runs, "why": [each for each in ADVISORIES[check] if each in here]}
            for check, runs in sorted(alarms.items())
        ],
    }  # fmt: skip


def reason_of_no_run(result: Mapping[str, Any]) -> str:
    """Why there was no healthy run that says anything; "" if there was one."""
    return monitor.failed(result) or monitor.reason_idle(result)


def injected(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The faults that were noticed and missed, and why the others could not be: by name, in words."""
    noticed: dict[str, str] = {}
    others: dict[str, str] = {}
    missed: list[str] = []
    for name, result in results.items():
        caught = faults.FAULTS[name].caught
        if seen := sorted(_alarms(result) & set(caught)):
            noticed[name] = seen[0]
        elif "refused" in result:
            others[name] = f"cannot be injected: {result['refused']}"
        elif "stopped" in result:
            others[name] = f"training stops by itself: {result['stopped']}"
        elif all(NEEDS[check] in result.get("absent", {}) for check in caught):
            others[name] = f"not checked: {result['absent'][NEEDS[caught[0]]]}"
        else:
            missed.append(name)
    return {"noticed": noticed, "missed": missed, "others": others}


def _alarms(result: Mapping[str, Any]) -> set[str]:
    return {finding["check"] for finding in result.get("findings", []) if finding["outcome"] == judge.ALARM}


def _record(home: Project, runs: int, rows: list[dict[str, Any]]) -> None:
    """Write the rows; those of other releases stay as they are, if runtime/ is the same."""
    before, runtime = evidence.read(home, MonitorReleases), sources.digest(home.runtime)
    kept = [row.model_dump() for row in before.rows] if before is not None and before.runtime == runtime else []
    made = {row["trl"]: row for row in [*kept, *rows]}
    command = f"python -m benchmarks.monitor_releases --runs {runs} --record"
    ordered = [made[release] for release in DATES if release in made]
    with home.holding("monitor-releases") as scratch:
        evidence.store(
            home, MonitorReleases.FILE, {**evidence.head(command), "runtime": runtime, "rows": ordered}, scratch
        )
        generate.refresh(home, scratch)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"monitor_releases: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
