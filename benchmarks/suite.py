"""The cost of the suite's runner, and what forking saves: `python -m benchmarks.suite`

One run of the whole suite on the host engine: the ratio of its wall time to what cannot be saved, the imports and the
probes' own compute. Then the same probes again, each in a fresh process, and the ratio of these times to the suite's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environments
from builder.base import errors, project, sources
from builder.certify import suite
from builder.certify.suite import Request
from builder.certify.transcript import Answer, Event
from builder.console.progress import Line
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import evidence

STACK = "trl1.16-cpu"
OVERHEAD = 1.3  # wall time over imports and compute, at most


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--record", action="store_true", help="write docs/evidence/suite-speed.json")
    options = parser.parse_args(arguments)
    home = project.find()
    lock = lockfile.load(home, options.stack)
    with home.holding(options.stack) as scratch:
        environment = environments.locked(home, lock, scratch)
        root = scratch / "suite"
        sources.copy(home.smoke, root)
        with Line("suite") as line:

            def timed(*probes: str) -> tuple[float, Answer, dict[str, float]]:
                return _timed(lock, environment, root, scratch, probes, line.say)

            timed()  # bytecode and the disk's cache, alike for both
            wall, answer, compute = timed()
            ran = [result for result in answer.results if result.outcome != "not-run"]
            fresh = {result.name: timed(result.name)[0] for result in ran}
        own = sum(compute.values())
        measured: dict[str, Any] = {
            "stack": lock.name,
            "lock": lock.digest,
            "probes": len(ran),
            "not_passed": [result.name for result in ran if result.outcome != "passed"],
            "wall_s": round(wall, 2),
            "imports_s": round(answer.imports_s, 2),
            "compute_s": round(own, 2),
            "overhead": round(wall / (answer.imports_s + own), 3),
            "fresh_s": round(sum(fresh.values()), 2),
            "fresh_over_suite": round(sum(fresh.values()) / wall, 2),
            "rows": [
                {"probe": name, "compute_s": round(compute[name], 2), "fresh_s": round(seconds, 2)}
                for name, seconds in fresh.items()
            ],
        }
        if options.record:
            command = " ".join(["python -m benchmarks.suite", *(arguments or sys.argv[1:])])
            print(home.relative(evidence.record(home, "suite-speed", command, measured, scratch)), file=sys.stderr)
    print(f"suite            {wall:7.1f} s for {len(ran)} probes")
    print(f"  imports        {answer.imports_s:7.1f} s")
    print(f"  compute        {own:7.1f} s")
    print(f"  overhead       {measured['overhead']:7.2f}   (at most {OVERHEAD})")
    print(f"a process each   {measured['fresh_s']:7.1f} s, {measured['fresh_over_suite']} times the suite")
    return 0 if measured["overhead"] <= OVERHEAD and not measured["not_passed"] else 1


def _timed(
    lock: Lock,
    environment: Path,
    root: Path,
    scratch: Path,
    probes: tuple[str, ...],
    say: Callable[[str], None],
) -> tuple[float, Answer, dict[str, float]]:
    """Run these probes (none: all); wall time, what came of it, and what each probe itself took, all in seconds."""
    compute: dict[str, float] = {}

    def note(event: Event) -> None:
        if event["event"] == "begin":
            say(event["probe"])
        if event["event"] == "measured":
            compute[event["probe"]] = event["compute_s"]

    folder = scratch / "timed"
    folder.mkdir()
    start = time.monotonic()
    answer = suite.run(
        suite.on_host(environment, root, folder / "run"),
        Request(lock.stack.device, lock.versions, probes),
        folder,
        note,
    )
    wall = time.monotonic() - start
    project.remove(folder)
    return wall, answer, compute


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"suite: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
