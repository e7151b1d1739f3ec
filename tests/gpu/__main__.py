"""What each part says on machines that do not exist: `python -m tests.gpu [--suite] [--record]`

Asks `vetted use`, compose and preflight. With --suite, `vetted certify` too: the stack is installed (8 GB), and its
suite runs on every machine, for half an hour, as root. Without --suite, what was recorded of that stays. Needs gcc and
docker's compose plugin, and no daemon.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from builder.base import project, sources
from builder.base.project import Project
from builder.certify import hostenv
from builder.certify.certificate import ProbeResult, Statement
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from builder.pages import evidence, fakes, generate
from tests.gpu import attempt, machines, stub
from tests.gpu.machines import FAKES, Fake, Said

STACK = "trl1.16-torch2.11-cu130"
COMMAND = "python -m tests.gpu"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--suite", action="store_true", help="run the suite on each of them")
    parser.add_argument("--record", action="store_true", help=f"write docs/evidence/{fakes.FakeGpus.FILE}.json")
    options = parser.parse_args(arguments)
    home = project.find()
    lock = lockfile.load(home, STACK)
    with home.holding(STACK) as scratch:
        environment = hostenv.prepare(home, lock, scratch, _tell) if options.suite else None
        site_packages = environment / lock.site_packages if environment else None
        libraries = stub.libraries(scratch / "libraries", site_packages)
        rows, attempts = [], {}
        for number, fake in enumerate(FAKES):
            _tell(fake.title)
            folder = scratch / f"machine-{number}"
            rows.append(row(fake, machines.answers(home, lock, fake, libraries, folder / "asked")))
            if environment and fake.driver:
                statement = attempt.certify_on(fake, home, lock, environment, libraries, folder / "attempt")
                attempts[fake.title] = tried(statement, whole=not fake.probes)
            _show(rows[-1], attempts.get(fake.title))
        if options.record:
            record(home, lock, rows, attempts, scratch)
    return 0


def record(
    home: Project, lock: Lock, rows: Sequence[dict[str, Any]], attempts: dict[str, Any], scratch: Path
) -> None:  # fmt: skip
    """Write the rows to docs/evidence/, and render the documents."""
    earlier = evidence.read(home, fakes.FakeGpus)
    latest = earlier.attempts.model_dump() if earlier and earlier.attempts else None
    if attempts:
        measured = {"suite": sources.digest(home.smoke), "lock": lock.digest, "by_machine": attempts}
        latest = {**evidence.head(f"{COMMAND} --suite --record"), **measured}
    document = {**evidence.head(f"{COMMAND} --record"), "stack": lock.name, "machines": rows, "attempts": latest}
    evidence.store(home, fakes.FakeGpus.FILE, document, scratch)
    with home.holding("documents") as documents:
        generate.refresh(home, documents)


def row(fake: Fake, answers: Said) -> dict[str, Any]:
    """A machine as it is recorded."""
    return {
        "title": fake.title,
        "gpus": [entry["name"] for entry in fake.rows],
        "driver": fake.driver,
        "chosen": answers.chosen,
        "reason": answers.reason,
        "container": answers.compose or None,
        "preflight": [{"level": level, "says": line} for level, line in answers.preflight],
        "hardware": answers.hardware,
    }


def tried(statement: Statement, *, whole: bool) -> dict[str, Any]:
    """A run of the suite as it is recorded."""
    predicate = statement.predicate
    red = [probe for probe in predicate.probes if probe.name in predicate.failedTests]
    return {
        "whole": whole,
        "passed": predicate.passedTests,
        "red": _by_reason(red),
        "not_run": _by_reason([probe for probe in predicate.probes if probe.name in predicate.notRun]),
        "certified": predicate.issued is not None,
    }


def _by_reason(probes: Sequence[ProbeResult]) -> dict[str, list[str]]:
    """The first line of each reason, and the probes that have it."""
    reasons: dict[str, list[str]] = {}
    for probe in probes:
        line = next(iter((probe.reason or "").splitlines()), probe.outcome)
        reasons.setdefault(line, []).append(probe.name)
    return reasons


def _show(shown: dict[str, Any], attempt_: dict[str, Any] | None) -> None:
    print(f"{shown['title']}: {shown['chosen'] or 'no stack'}")
    for check in shown["preflight"]:
        print(f"  {check['level']:<8} {check['says']}")
    if attempt_:
        counts = {word: sum(map(len, attempt_[word].values())) for word in ("red", "not_run")}
        print(f"  suite: {len(attempt_['passed'])} passed, {counts['red']} red, {counts['not_run']} not run")


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
