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
from collections.abc import Sequence
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
    parser.add_argument("--record", action="store_true", help="write docs/evidence/measured.json")
    options = parser.parse_args(arguments)
    home = project.find()
    names = options.controls or stack.control_names(home)
    with home.holding("measured") as scratch:
        cache, answers = Cache(scratch / "cache"), dict[str, dict[str, Any]]()
        rows = [_row(home, control.load(home, name), scratch, cache, answers) for name in names]
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


def _row(
    home: Project, locked: Locked, scratch: Path, cache: Cache, answers: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    own = {record.id for record in advisory.load_all(home) if locked.name in record.controls}
    bad, twin = (_answer(home, lock, scratch, cache, answers) for lock in (locked.bad, locked.twin))
    on_bad, on_twin = _red(bad), _red(twin)
    row = {
        "control": locked.name,
        "named": bool(own & on_bad.keys()),
        "first": next(iter(on_bad), ""),
        "advisories": sorted(own),
        "others": {rule: words for rule, words in on_bad.items() if rule not in own},
        "false": sorted((own & on_twin.keys()) | ({UNEXPLAINED} & on_twin.keys())),
        "red_on_twin": {rule: words for rule, words in on_twin.items() if rule not in own},
        "seconds": round(bad["seconds"], 1),
    }
    print(json.dumps(row), file=sys.stderr)
    return row


def _answer(
    home: Project, lock: Lock, scratch: Path, cache: Cache, answers: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """What the doctor says of a set of packages; the same set is measured once."""
    if lock.digest not in answers:
        with hostenv.temporary(home, lock, scratch, lambda _: None, cache) as environment:
            begin = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "doctor", "--measure", "--json", "--python", str(environment)],
                cwd=home.root, env={**os.environ, **hostenv.environment(environment)},
                stdout=subprocess.PIPE, text=True, check=False,
            )  # fmt: skip
            seconds = time.perf_counter() - begin
        if done.returncode not in (0, 1):
            raise errors.from_tool(f"the doctor in {lock.name}", done.stdout)
        answers[lock.digest] = {**json.loads(done.stdout), "seconds": seconds}
    return answers[lock.digest]


def _red(answer: dict[str, Any]) -> dict[str, str]:
    """Sure findings with a red probe among their evidence, by rule, in their order: its words."""
    words = {
        finding["rule"]: next((line for line in finding["evidence"] if ", run here: " in line), "")
        for finding in answer["findings"]
        if finding["confidence"] in SURE
    }
    return {rule: line for rule, line in words.items() if line}


if __name__ == "__main__":
    sys.exit(main())
