"""Watch one probe until it ends, or kill it for taking too long or too much memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

from smoke.run import linux, outcome
from smoke.run.outcome import Ending

_STACKS_S = 0.3  # time for a hanging probe to write its stacks to the log
_MEMORY_SHARE = 0.02  # the largest share of the time that may go into reading memory use from the kernel


class Watch:
    """The limits of one probe.

    `zygote` is the process that forks the probe; `spared` are all processes that existed before. All other descendants
    of this process belong to the probe.
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
        """Kill the probe if it exceeds a limit. Call this every few hundredths of a second."""
        if self._stopped:
            linux.signal_all(self._processes(), signal.SIGKILL)  # again, for processes forked in the meantime
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
        """The ending of a probe with this exit status; `rank` is the rank, of several, that caused it."""
        return Ending(status, self._stopped, self._oom_killed(), rank)

    def orphaned(self, status: int) -> Ending:
        """The ending of a probe whose zygote ended with `status`."""
        if self._stopped:
            return Ending(status, self._stopped)
        zygote = "the zygote, parent of every probe, has ended:"
        if status == -signal.SIGKILL and self._oom_killed():
            return Ending(status, (outcome.OOM, f"{zygote} killed by the kernel's OOM killer"))
        return Ending(status, (outcome.CRASHED, f"{zygote} {outcome.ended(status)}"))

    def _processes(self) -> set[int]:
        return linux.descendants(os.getpid()) - self._spared

    def _oom_killed(self) -> bool:
        return linux.oom_kills() > self._oom_kills


def follow(watch: Watch, answers: Callable[[], list[dict[str, Any]]], status: Callable[[], int | None]) -> int | None:
    """Watch until the zygote answers with the probe's exit status, and return that; None if the zygote has ended."""
    while True:
        alive = status() is None  # checked first: the last answers of a dying zygote still count
        for answer in answers():
            if isinstance(answer.get("ended"), int):
                return int(answer["ended"])
        if not alive:
            return None
        watch.look()
