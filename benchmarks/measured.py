"""Does `vetted doctor --measure` name the true defect of every control? `python -m benchmarks.measured [CONTROL…]`

Installs each control and each twin, runs `doctor --measure` there as a user would, and asks whether the advisory that
lists the control is among the sure findings with a red probe of its own. On the twin that advisory, or a red probe
that no advisory explains, is a false one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from builder.base import errors, project
from builder.base.project import Project
from builder.certify import control, hostenv
from builder.certify.cache import Cache
from builder.certify.control import Locked
from builder.intent import advisory, stack
from builder.lock.lockfile import Lock
from builder.pages import evidence
from doctor.finding import SURE

UNEXPLAINED = "measured"  # the rule of a finding that no advisory explains


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints a row for each control, returns 1 where one was missed or a twin was blamed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measured", description=__doc__)
    parser.add_argument("controls", nargs="*", metavar="CONTROL", help="default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="sets side by side")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/measured.json")
    options = parser.parse_args(arguments)
    home = project.find()
    names = options.controls or stack.control_names(home)
    with home.holding("measured") as scratch:
        cache, controls = Cache(scratch / "cache"), [control.load(home, name) for name in names]
        locks = {lock.digest: lock for locked in controls for lock in (locked.bad, locked.twin)}
        with ThreadPoolExecutor(options.jobs) as pool:
            work = pool.map(lambda lock: _answer(home, lock, scratch / lock.name, cache), locks.values())
            answers = dict(zip(locks, work, strict=True))
        rows = [_row(home, locked, answers) for locked in controls]
        summary = {
            "controls": len(rows),
            "named": sum(row["named"] for row in rows),
            "false": sum(bool(row["false"]) for row in rows),
            "rows": rows,
        }
        if options.record:
            evidence.record(home, "measured", "python -m benchmarks.measured --record", summary, scratch)
    print(f"{summary['named']} of {summary['controls']} named, {summary['false']} false on twins")
    return 0 if summary["named"] == len(rows) and not summary["false"] else 1


def _row(home: Project, locked: Locked, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    own = {record.id for record in advisory.load_all(home) if locked.name in record.controls}
    bad, twin = answers[locked.bad.digest], answers[locked.twin.digest]
    on_bad, on_twin = _red(bad), _red(twin)
    return {
        "control": locked.name,
        "named": bool(own & on_bad.keys()),
        "first": next(iter(on_bad), ""),
        "advisories": sorted(own),
        "others": {rule: words for rule, words in on_bad.items() if rule not in own},
        "false": sorted((own & on_twin.keys()) | ({UNEXPLAINED} & on_twin.keys())),
        "red_on_twin": {rule: words for rule, words in on_twin.items() if rule not in own},
        "seconds": round(bad["seconds"], 1),
    }


def _answer(home: Project, lock: Lock, scratch: Path, cache: Cache) -> dict[str, Any]:
    """What the doctor says of a set of packages."""
    scratch.mkdir()
    with hostenv.temporary(home, lock, scratch, lambda _: None, cache) as environment:
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "doctor", "--measure", "--json", "--python", str(environment)],
            cwd=home.root, env={**os.environ, **hostenv.environment(environment)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - begin
    if done.returncode not in (0, 1):
        raise errors.from_tool(f"the doctor in {lock.name}", done.stderr)
    answer: dict[str, Any] = {**json.loads(done.stdout), "seconds": seconds}
    print(f"{lock.name}: {', '.join(_red(answer)) or 'nothing red'}", file=sys.stderr)
    return answer


def _red(answer: Mapping[str, Any]) -> dict[str, str]:
    """Sure findings with a red probe among their evidence, by rule, in their order: its words."""
    words = {
        finding["rule"]: next((line for line in finding["evidence"] if ", run here: " in line), "")
        for finding in answer["findings"]
        if finding["confidence"] in SURE
    }
    return {rule: line for rule, line in words.items() if line}


if __name__ == "__main__":
    sys.exit(main())
