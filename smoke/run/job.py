"""One probe's run as files: where its log, its readings and its end are written, and how they are read back.

A file keeps what a process wrote before it died; a pipe to a process that crashes half-way through a line does not.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from smoke.probe import Reading

_LOG_TAIL = 4000  # characters
_LARGEST = 16 << 20  # bytes of a probe's results


def _read(path: Path, largest: int, *, end: bool = False) -> str:
    """The beginning of a file that a probe wrote, or its end. Raises OSError for a link, a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a regular file")
        if end:
            file.seek(max(0, status.st_size - largest))
        return file.read(largest).decode(errors="replace")


@dataclass(frozen=True)
class Job:
    """One probe to run, everything its process needs to know; travels to the zygote as JSON.

    `directory` holds the log and the results, and `work`, the probe's working directory.
    """

    file: str
    device: str
    seed: int
    ranks: int
    directory: str
    distributions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The job as JSON."""
        return asdict(self)

    @property
    def work(self) -> Path:
        """The probe's working directory."""
        return Path(self.directory, "work")

    @property
    def log(self) -> Path:
        """What the probe's processes wrote to their standard output and error."""
        return Path(self.directory, "log")

    def log_tail(self) -> str:
        """The end of the log."""
        with suppress(OSError):
            return _read(self.log, 4 * _LOG_TAIL, end=True)[-_LOG_TAIL:]
        return ""

    def _result(self, rank: int) -> Path:
        return Path(self.directory, f"result-{rank}.jsonl")

    def append(self, rank: int, record: Mapping[str, Any]) -> None:
        """Add one record to what `rank` reports."""
        with self._result(rank).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def report(self, rank: int) -> Report:
        """Read what `rank` has reported. A line that was cut off, or is no record, does not count."""
        report = Report()
        with suppress(OSError):
            for line in _read(self._result(rank), _LARGEST).split("\n"):
                with suppress(ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
                    report.take(json.loads(line))
        return report

    def culprit(self) -> int | None:
        """The rank that ended a run of several, or None."""
        with suppress(OSError, ValueError):
            rank = int(_read(Path(self.directory, "culprit"), 16))
            return rank if 0 <= rank < self.ranks else None
        return None

    def blame(self, rank: int) -> None:
        """Note which rank ended the run."""
        Path(self.directory, "culprit").write_text(str(rank))


class Report:
    """What one rank has reported: readings, and at the end that it is done, or an exception, or not applicable."""

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.failure: str | None = None
        self.not_applicable: str | None = None
        self.done = False
        self.seconds = 0.0  # what the probe itself took, without what the runner does around it

    def take(self, record: Mapping[str, Any]) -> None:
        """Add one record."""
        if "reading" in record:
            reading = Reading(str(record["reading"]), float(record["value"]), str(record["detail"]))
            self.readings[reading.name] = reading
        if "failure" in record:
            self.failure = str(record["failure"])
        if "not_applicable" in record:
            self.not_applicable = str(record["not_applicable"])
        self.done |= record.get("done") is True
        seconds = float(record.get("seconds", self.seconds))
        self.seconds = seconds if math.isfinite(seconds) else 0.0
