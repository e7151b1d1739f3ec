"""A fleet of which a node dies: how much longer than the best schedule does it take? `python -m benchmarks.fleet`

    python -m benchmarks.fleet [--seconds 60] [--kill 30] [--record]

Starts a real Slurm of two nodes on this machine (tests/engine/cluster.py; as root, with slurmctld, slurmd, slurm-client
and munge), and `vetted fleet` with five small stacks whose suites sleep. One node is killed in the middle of its first
suite, and does not come back. Every certificate must be there once. The wall time is compared with the best schedule of
the same durations, for somebody who knows beforehand when the node dies. Mostly asleep, it can run beside other work.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.base import project
from builder.certify import certificate, judgement
from builder.fleet import slurm
from builder.lock import lockfile
from builder.pages import evidence
from tests.conftest import GOOD_RUN, ROOT, TINY, Small, make_small
from tests.engine import cluster
from tests.engine.cluster import Cluster

STACKS = (TINY, *(f"{TINY}-{letter}" for letter in "bcde"))
PATIENCE = 120  # seconds until the first suite begins


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints what it measured, and returns 1 unless every certificate is there exactly once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="that a suite sleeps")
    parser.add_argument("--kill", type=float, default=30, help="seconds after the first suite began")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/fleet.json")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="vetted-bench-") as folder:
        small = _project(Path(folder), options.seconds)
        with cluster.running(Path(folder) / "cluster") as nodes:
            measured = _measure(small, nodes, options.kill)
        measured = {"suite_s": options.seconds, "kill_s": options.kill, **measured}
        print(json.dumps(measured, indent=1))
        if options.record:
            command = "python -m benchmarks.fleet --record"
            home = project.find(ROOT)
            evidence.store(home, "fleet", {**evidence.head(command), **measured}, Path(folder))
    return 0 if measured["certificates"] == measured["suites_ended"] == len(STACKS) else 1


def ideal(durations: Sequence[float], until: float) -> float:
    """The least wall time of these units on two nodes, of which one does nothing after `until`."""
    everything = sum(durations)
    subsets = (
        sum(chosen)
        for number in range(len(durations) + 1)
        for chosen in itertools.combinations(durations, number)
        if sum(chosen) <= until
    )
    return min(max(there, everything - there) for there in subsets)


def _project(folder: Path, seconds: float) -> Small:
    """Five stacks whose suite writes down when it begins and ends, and sleeps between."""
    small = make_small(folder / "small")
    for name in STACKS[1:]:
        shutil.copytree(small.file("stack.toml").parent, small.project.stack_dir(name))
    log = f"open({str(small.root / 'log')!r}, 'a')"
    small.suite(
        f"import time\nprint('begin', os.getpid(), file={log})\ntime.sleep({seconds})\n"
        f"{GOOD_RUN}print('end', file={log})\n"
    )
    return small


def _measure(small: Small, nodes: Cluster, kill: float) -> dict[str, Any]:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "VETTED_WHEELHOUSE": str(small.wheelhouse),
        "UV_CACHE_DIR": str(small.root / "uv-cache"), **nodes.environment,
    }  # fmt: skip
    argv = [sys.executable, "-m", "builder", "fleet", *STACKS, "--on", "slurm", "--json"]
    began = time.monotonic()
    with subprocess.Popen(argv, cwd=small.root, env=environment, text=True, stdout=subprocess.PIPE) as command:
        process = _first(small.root / "log")
        time.sleep(kill)
        killed = time.monotonic() - began
        node = nodes.node_of(process)
        nodes.kill(node)
        print(f"{node} was killed after {killed:.0f} s", file=sys.stderr, flush=True)
        out, _ = command.communicate()
    wall = time.monotonic() - began
    units = json.loads(out)
    durations = [float(unit["seconds"]) for unit in units]
    best = ideal(durations, killed)
    words = [line.split()[0] for line in (small.root / "log").read_text().splitlines()]
    return {
        "stacks": len(STACKS), "nodes": len(cluster.NODES), "certificates": _certified(small),
        "suites_begun": words.count("begin"), "suites_ended": words.count("end"),
        "jobs_left": len(slurm._known(small.project.state / "fleet" / slurm.JOURNAL)),
        "unit_s": [round(duration, 1) for duration in durations], "killed_s": round(killed, 1),
        "wall_s": round(wall, 1), "ideal_s": round(best, 1), "ratio": round(wall / best, 3),
    }  # fmt: skip


def _first(log: Path) -> int:
    """The process of the first suite, once it has begun."""
    for _ in range(PATIENCE * 10):
        if log.is_file() and (line := log.read_text().partition("\n")[0]):
            return int(line.split()[1])
        time.sleep(0.1)
    sys.exit(f"no suite has begun in {PATIENCE} s")


def _certified(small: Small) -> int:
    """The stacks whose certificate holds."""
    count = 0
    for name in STACKS:
        path = certificate.path(small.project, name, "cpu", "host")
        terms = judgement.terms(small.project, lockfile.load(small.project, name))
        count += path.is_file() and judgement.is_valid(certificate.read(path), terms)
    return count


if __name__ == "__main__":
    sys.exit(main())
