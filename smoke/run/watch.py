"""Watching one probe: it ends by itself, or it is ended for taking too long or too much memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from smoke.run import linux, outcome
from smoke.run.outcome import Ending

_STACKS_S = 0.3  # what a hanging probe gets to write its stacks into the log
_MEMORY_SHARE = 0.05  # of the time at most goes into reading the kernel's memory accounts


class Watch:
    """The limits of one probe, and what became of it.

    `zygote` is the process that forks the probe; `spared` are all processes that were there before. The others
    below this process are the probe's.
    """

    def __init__(self, zygote: int, spared: set[int], timeout_s: float, memory_mib: float) -> None:
        self.peak_mib = 0.0
        self._spared = spared | {zygote}
        self._timeout_s = timeout_s
        self._limit_mib = memory_mib
        self._start = time.monotonic()
        self._next_look = self._start
        self._oom_kills = linux.oom_kills()
        self._stopped: tuple[str, str] | None = None

    def look(self) -> None:
        """Compare the probe with its limits, and end it when it is past one. To be called every few hundredths."""
        if self._stopped:
            linux.signal_all(self._processes(), signal.SIGKILL)  # again, for what was forked meanwhile
            return
        now = time.monotonic()
        if now - self._start > self._timeout_s:
            self._stopped = outcome.TIMEOUT, f"still running after {self._timeout_s:g} s"
            linux.signal_all(self._processes(), signal.SIGUSR1)
            time.sleep(_STACKS_S)
        elif now >= self._next_look:
            used = linux.memory_mib(self._processes())
            self.peak_mib = max(self.peak_mib, used)
            if used > self._limit_mib:
                self._stopped = outcome.OOM, f"used {used:.0f} MiB of memory, more than its {self._limit_mib:g} MiB"
            spent = time.monotonic() - now
            self._next_look = now + spent / _MEMORY_SHARE
        if self._stopped:
            linux.signal_all(self._processes(), signal.SIGKILL)

    def ended(self, status: int, rank: int | None = None) -> Ending:
        """The probe has ended with `status`, of several ranks because of `rank`."""
        return Ending(status, self._stopped, self._oom_killed(), rank)

    def orphaned(self, status: int) -> Ending:
        """The zygote has ended with `status`, and the probe with it."""
        if self._stopped:
            return Ending(status, self._stopped)
        zygote = "the zygote, parent of every probe, is gone:"
        if status == -signal.SIGKILL and self._oom_killed():
            return Ending(status, (outcome.OOM, f"{zygote} killed by the kernel's OOM killer"))
        return Ending(status, (outcome.CRASHED, f"{zygote} {outcome.ended(status)}"))

    def _processes(self) -> set[int]:
        return linux.descendants(os.getpid()) - self._spared

    def _oom_killed(self) -> bool:
        return linux.oom_kills() > self._oom_kills


def follow(watch: Watch, answers: Callable[[], list[dict[str, Any]]], status: Callable[[], int | None]) -> int | None:
    """Watch until the zygote answers how the probe ended, and return that; None when the zygote itself has ended."""
    while True:
        alive = status() is None  # looked at first: the last answers of a dying zygote still count
        for answer in answers():
            if isinstance(answer.get("ended"), int):
                return int(answer["ended"])
        if not alive:
            return None
        watch.look()
