"""How long do preflight's checks of a GPU take? `python -m benchmarks.preflight [--record]`

Every run is a new process in a container of compose, in the image of the newest stack for CUDA, on a fake H200
(tests/gpu): the library that is asked is a stub, which answers at once where a real one may take a while. Needs gcc and
docker's compose plugin, and no daemon.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

from builder.base import errors, project, sources
from builder.base.project import Project
from builder.lock import lockfile
from builder.pages import evidence, speed
from tests.gpu import machines, stub
from tests.gpu.machines import FAKES, Fake

STACK = "trl1.16-cu130"
RUNS = 31
LIMIT_S = 0.1
# Prints the seconds of: importing preflight; all of its checks; and of those, what is asked of NVML.
TIMED = """
import json, pathlib, sys, time
begin = time.perf_counter()
from runtime import capability, preflight
imported, asked = time.perf_counter(), 0.0

def capabilities():
    global asked
    start = time.perf_counter()
    answer = capability.capabilities()
    asked += time.perf_counter() - start
    return answer

checks = preflight.look(pathlib.Path(sys.argv[1]), {"CUDA_VISIBLE_DEVICES": sys.argv[2]}, capabilities)
looked = time.perf_counter()
assert any("has kernels for" in str(check) for check in checks), checks
print(json.dumps([imported - begin, looked - imported, asked]))
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints the seconds, returns 1 where they are over the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preflight", description=__doc__)
    parser.add_argument("--record", action="store_true", help=f"write docs/evidence/{speed.Preflight.FILE}.json")
    options = parser.parse_args(arguments)
    home = project.find()
    (fake,) = [fake for fake in FAKES if fake.title == "H200"]
    with home.holding(STACK) as scratch:
        measured = measure(home, fake, scratch)
        if options.record:
            document = {
                **evidence.head("python -m benchmarks.preflight --record"),
                "runtime": sources.digest(home.runtime),
                **measured,
            }
            evidence.store(home, speed.Preflight.FILE, document, scratch)
    print(f"checks   {measured['median_s']:.4f} s, the slowest {measured['slowest_s']:.4f} s   (at most {LIMIT_S} s)")
    print(f"  NVML   {measured['asked_s']:.4f} s")
    print(f"imports  {measured['imports_s']:.4f} s")
    return 0 if measured["slowest_s"] <= LIMIT_S else 1


def measure(home: Project, fake: Fake, scratch: Any) -> dict[str, Any]:
    """The seconds of every part over many runs, after one that does not count."""
    libraries = stub.libraries(scratch / "libraries")
    run = machines.inside(home, lockfile.load(home, STACK), fake, libraries, scratch / "container")
    run(TIMED)
    imports, checks, queries = zip(*(run(TIMED) for _ in range(RUNS)), strict=True)
    return {
        "stack": STACK,
        "gpu": fake.rows[0]["name"],
        "runs": RUNS,
        "limit_s": LIMIT_S,
        "median_s": round(statistics.median(checks), 5),
        "slowest_s": round(max(checks), 5),
        "asked_s": round(statistics.median(queries), 5),
        "imports_s": round(statistics.median(imports), 4),
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"preflight: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
