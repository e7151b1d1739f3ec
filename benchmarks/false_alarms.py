"""How often does the suite turn red on a good stack? `python -m benchmarks.false_alarms`

Runs the whole suite many times on the host engine, each time with another seed. More runs than cores go on side by
side, so that every run is under load; every second run may use one core only, so that torch has one thread. A
probe that is red in any of them is a false alarm. All values of every number are recorded; the documents show their
range beside the bound. `--add` adds runs to those recorded with the same suite and lock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks import environments
from builder.base import errors, project, reading, sources
from builder.certify import suite
from builder.certify.certificate import ProbeResult
from builder.certify.suite import Request
from builder.lock import lockfile
from builder.pages import evidence

STACK = "trl1.16-cpu"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.false_alarms", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument(
        "--add", action="store_true", help="add these runs to the recorded ones; their seeds go on after them"
    )
    parser.add_argument("--jobs", type=int, default=(os.cpu_count() or 1) + 1, help="runs side by side")
    parser.add_argument("--probe", action="append", default=[])
    parser.add_argument("--record", action="store_true", help="write docs/evidence/false-alarms.json")
    options = parser.parse_args(arguments)
    if options.add and (options.probe or options.first_seed != parser.get_default("first_seed")):
        parser.error("--add takes all probes, and seeds after the recorded ones")
    if options.runs < 1 or options.jobs < 1:
        parser.error("--runs and --jobs are at least 1")
    home = project.find()
    lock = lockfile.load(home, options.stack)
    earlier = recorded(home, lock, options.jobs) if options.add else {}
    if earlier:
        options.first_seed = earlier["last_seed"] + 1
    with home.holding(options.stack) as scratch:
        environment = environments.locked(home, lock, scratch)
        root = scratch / "suite"
        sources.copy(home.smoke, root)

        def run(seed: int) -> tuple[int, tuple[ProbeResult, ...]]:
            folder = scratch / f"seed-{seed}"
            folder.mkdir()
            request = Request(lock.stack.device, lock.versions, tuple(options.probe), seed)
            runner = suite.on_host(environment, root, folder / "run")
            if core := one_core(seed):
                runner = replace(runner, command=["taskset", "--cpu-list", core, *runner.command])
            answer = suite.run(runner, request, folder, lambda _: None)
            project.remove(folder)
            red = [result for result in answer.results if result.outcome not in ("passed", "not-run")]
            print(f"seed {seed}: {len(answer.results) - len(red)} of {len(answer.results)} not red", file=sys.stderr)
            for result in red:
                print(f"  {result.name}: {result.outcome}: {result.reason}\n{result.log_tail or ''}", file=sys.stderr)
            return seed, answer.results

        seeds = range(options.first_seed, options.first_seed + options.runs)
        command = " ".join(["python -m benchmarks.false_alarms", *(arguments or sys.argv[1:])])
        runs: list[tuple[int, tuple[ProbeResult, ...]]] = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(run, seeds):
                runs.append(result)
                measured = {"stack": lock.name, "lock": lock.digest, **measurement(runs, options.jobs, earlier)}
                # After each run: what ends before the last one has lost nothing.
                if options.record:
                    commands = ", then ".join(filter(None, (earlier.get("command"), command)))
                    evidence.record(home, "false-alarms", commands, measured, scratch)
    alarms = measured["false_alarms"]
    print(f"{len(alarms)} false alarms in {measured['runs']} runs of {len(measured['probes'])} probes")
    return 1 if alarms else 0


def measurement(
    runs: Sequence[tuple[int, tuple[ProbeResult, ...]]], jobs: int, earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """What the runs show together with `earlier` ones."""
    seeds = [seed for seed, _ in runs]
    return {
        "runs": len(runs) + earlier.get("runs", 0),
        "runs_on_one_core": sum(one_core(seed) != "" for seed in seeds) + earlier.get("runs_on_one_core", 0),
        "seeds": ", ".join(filter(None, (earlier.get("seeds"), f"{seeds[0]} to {seeds[-1]}"))),
        "last_seed": seeds[-1],
        "side_by_side": jobs,
        "cores": os.cpu_count(),
        **summary(runs, earlier),
    }


def one_core(seed: int) -> str:
    """The core that the run with this seed may use, "" if all of them."""
    cores = sorted(os.sched_getaffinity(0))
    return str(cores[seed // 2 % len(cores)]) if seed % 2 else ""


def recorded(home: project.Project, lock: lockfile.Lock, jobs: int) -> dict[str, Any]:
    """The runs that were recorded with this suite, lock and load. Raises VettedError if there are none."""
    file = evidence.path(home, "false-alarms")
    document: dict[str, Any] = reading.json_object(file, home.relative(file), f"git checkout {home.relative(file)}")
    same = document.get("suite") == sources.digest(home.smoke) and document.get("lock") == lock.digest
    load = (document.get("side_by_side"), document.get("cores")) == (jobs, os.cpu_count())
    if not same or not load or "last_seed" not in document:
        raise errors.VettedError(
            "the recorded runs are of another suite, lock or load",
            next_step="python -m benchmarks.false_alarms --record",
        )
    return document


def summary(
    runs: Iterable[tuple[int, tuple[ProbeResult, ...]]], earlier: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The false alarms, and for every probe its outcomes and the distribution of every number, with `earlier` ones."""
    alarms = list(earlier["false_alarms"]) if earlier else []
    known: dict[str, Any] = earlier["probes"] if earlier else {}
    probes: dict[str, dict[str, Any]] = {
        name: {"outcomes": dict(probe["outcomes"]), "seconds": list(probe["seconds"]["values"]), "measurements": []}
        for name, probe in known.items()
    }
    # Of every number its unit and bound, and the values.
    rows: dict[tuple[str, str], tuple[dict[str, Any], list[float]]] = {
        (name, row["name"]): ({"unit": row["unit"], "bound": row["bound"]}, list(row["values"]))
        for name, probe in known.items()
        for row in probe["measurements"]
    }
    for seed, results in runs:
        for result in results:
            entry = probes.setdefault(result.name, {"outcomes": {}, "seconds": [], "measurements": []})
            entry["outcomes"][result.outcome] = entry["outcomes"].get(result.outcome, 0) + 1
            entry["seconds"].append(result.seconds)
            if result.outcome not in ("passed", "not-run"):
                alarms.append({"seed": seed, "probe": result.name, "reason": result.reason})
            for measurement in result.measurements:
                if isinstance(measurement.value, (int, float)):
                    about = {"unit": measurement.unit, "bound": measurement.bound}
                    row = rows.setdefault((result.name, measurement.name), (about, []))
                    row[1].append(_short(measurement.value))
    for (probe, name), (about, values) in rows.items():
        numbers = sorted(values)
        probes[probe]["measurements"].append(
            {
                "name": name,
                **about,
                "n": len(numbers),
                "min": numbers[0],
                "median": _short(statistics.median(numbers)),
                "max": numbers[-1],
                "values": numbers,
            }
        )
    for entry in probes.values():
        seconds = sorted(_short(value) for value in entry["seconds"])
        entry["seconds"] = {"median": _short(statistics.median(seconds)), "max": seconds[-1], "values": seconds}
    return {"false_alarms": alarms, "probes": probes}


def _short(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"false_alarms: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
