"""Wait for gloo's threads before the interpreter ends: one that still frees a tensor then would abort the process.

A thread that frees a tensor needs the interpreter. If that has begun to end, Python ends the thread, and C++ answers
with "terminate called without an active exception": a run that trained and saved all fails with SIGABRT.
https://github.com/pytorch/pytorch/pull/179291 has the cause. Destroying the process groups is not enough, because a
group that the trainer still holds keeps its threads.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NAME = "pt_gloo"  # how torch names these threads
PAUSE = 0.05  # seconds in which an idle thread does not run
PATIENCE = 5.0  # seconds; a thread that waits for a rank that is gone would never end


def settle() -> None:
    """Return when no thread of gloo has run for PAUSE seconds, or after PATIENCE. At once where there are none."""
    end = time.monotonic() + PATIENCE
    before = _switches()
    while before and time.monotonic() < end:
        time.sleep(PAUSE)
        if (after := _switches()) == before:
            return
        before = after


def _switches() -> dict[str, list[str]]:
    """By thread of gloo, how often it began to run; empty without Linux's /proc."""
    counts: dict[str, list[str]] = {}
    for status in Path("/proc/self/task").glob("*/status"):
        with suppress(OSError):  # it has ended since
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines and lines[0].split("\t")[-1].startswith(NAME):
                counts[status.parent.name] = [line for line in lines if "ctxt_switches" in line]
    return counts
