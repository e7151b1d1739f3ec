"""Records a run of the suite on a GPU that earned no certificate, for the documents.

    .venv/bin/python -m scripts.gpu_run report.json --requirements requirements.txt --date DAY --stack "what it is"

report.json is what a bundle left in its folder `results`, requirements.txt the list of the lock that it was of.
Exit codes: 0 recorded - 3 the report or the list cannot be read, or the date is none.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

from builder.base import errors, project
from builder.certify import certificate
from builder.certify.certificate import Statement
from builder.pages import evidence, gpurun

COMMAND = "python3 run.pyz"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--requirements", type=Path, required=True, help="the list of the lock")
    parser.add_argument("--date", required=True, help="the day of the run, such as 2026-11-27")
    parser.add_argument("--stack", required=True, help="what the lock is, in words")
    options = parser.parse_args()
    try:
        versions = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", options.requirements.read_text(), re.MULTILINE))
        date = datetime.date.fromisoformat(options.date).isoformat()
        record = of(certificate.read(options.report), versions, date, options.stack)
        found = project.find()
        with found.holding("gpu-run") as scratch:
            print(evidence.store(found, record.FILE, record.model_dump(mode="json"), scratch))
    except (errors.VettedError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def of(statement: Statement, versions: dict[str, str], date: str, stack: str) -> gpurun.GpuRun:
    """The record of a report. `versions`: those of its lock."""
    hardware, engine, python = (statement.resource(name).annotations or {} for name in ("hardware", "engine", "python"))
    suite = statement.resource("suite").digest
    return gpurun.GpuRun(
        date=date,
        machine=f"{statement.hardware}, {hardware.get('cores')} cores",
        command=COMMAND,
        suite=f"sha256:{suite.sha256}" if suite else "",
        stack=stack,
        versions={name: versions[name] for name in gpurun.MAIN if name in versions},
        distributions=len(versions),
        system=str(engine.get("system")),
        python=str(python.get("version")),
        probes=gpurun.outcomes(statement),
    )


if __name__ == "__main__":
    sys.exit(main())
