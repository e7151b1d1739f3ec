"""The files of one probe's run: its log, its readings and its end, written by the probe and read by the supervisor.

Files, not pipes: a file keeps everything that a process wrote before it crashed.
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
    """The first (or last) `largest` bytes of a file that a probe wrote. Raises OSError for a link, pipe or device."""
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
    """One probe to run, with everything that its process needs; sent to the zygote as JSON.

    `directory` contains the log, the results, and `work`, the probe's working directory. `gpus` is the value of
    CUDA_VISIBLE_DEVICES, where the probe shall not see all of them.
    """

    file: str
    device: str
    seed: int
    ranks: int
    directory: str
    distributions: Mapping[str, str]
    gpus: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The job as JSON."""
        return asdict(self)

    @property
    def work(self) -> Path:
        """The probe's working directory."""
        return Path(self.directory, "work")

    @property
    def log(self) -> Path:
        """The standard output and error of the probe's processes."""
        return Path(self.directory, "log")

    def log_tail(self) -> str:
        """The end of the log."""
        with suppress(OSError):
            return _read(self.log, 4 * _LOG_TAIL, end=True)[-_LOG_TAIL:]
        return ""

    def _result(self, rank: int) -> Path:
        return Path(self.directory, f"result-{rank}.jsonl")

    def append(self, rank: int, record: Mapping[str, Any]) -> None:
        """Add one record to the report of `rank`."""
        with self._result(rank).open("a") as file:
            file.write(json.dumps(record) + "\n")

    def report(self, rank: int) -> RankReport:
        """Read the report of `rank`. Truncated and malformed lines do not count."""
        report = RankReport()
        with suppress(OSError):
            for line in _read(self._result(rank), _LARGEST).split("\n"):
                with suppress(ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
                    report.add(json.loads(line))
        return report

    def failed_rank(self) -> int | None:
        """The rank whose failure ended a run of several ranks, or None."""
        with suppress(OSError, ValueError):
            rank = int(_read(Path(self.directory, "culprit"), 16))
            return rank if 0 <= rank < self.ranks else None
        return None

    def set_failed_rank(self, rank: int) -> None:
        """Write down which rank's failure ended the run."""
        Path(self.directory, "culprit").write_text(str(rank))


class RankReport:
    """The report of one rank: its readings, and how it ended: done, with an exception, or not applicable."""

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.failure: str | None = None
        self.not_applicable: str | None = None
        self.done = False
        self.seconds = 0.0  # the time of the probe itself, without the runner's overhead

    def add(self, record: Mapping[str, Any]) -> None:
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
