"""Wait for gloo's threads before the interpreter ends: one that still frees a tensor then would abort the process.

A thread that frees a tensor needs the interpreter. If that has begun to end, Python ends the thread, and C++ answers
with "terminate called without an active exception": a run whose results are saved still fails, with SIGABRT.
https://github.com/pytorch/pytorch/pull/179291 has the cause. Destroying the process groups is not enough, because a
group that the trainer still holds keeps its threads.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

NAME = "pt_gloo"  # as torch 2.13 names these threads; those of old releases have no name, and are not waited for
PAUSE = 0.05  # seconds between two looks
LOOKS = 3  # in a row that must find all asleep
PATIENCE = 5.0  # seconds; a thread that never rests is given up
SLEEPING = "State:\tS (sleeping)"  # one that waits for a core is "R (running)", and its counts stay the same


def settle() -> None:
    """Return when all threads of gloo have slept for LOOKS * PAUSE seconds, or after PATIENCE.

    At once where there are none. A thread that waits for another rank sleeps as well: at the end of a run that went
    well, no rank has to wait for another one.
    """
    end = time.monotonic() + PATIENCE
    before, rested = _threads(), 0
    while before and rested < LOOKS and time.monotonic() < end:
        time.sleep(PAUSE)
        after = _threads()
        asleep = all(SLEEPING in lines for lines in after.values())
        rested = rested + 1 if asleep and after == before else 0
        before = after


def _threads() -> dict[str, list[str]]:
    """By thread of gloo, what Linux says of its state and of how often it was switched out; empty without /proc."""
    threads: dict[str, list[str]] = {}
    for status in Path("/proc/self/task").glob("*/status"):
        with suppress(OSError):  # it has ended since
            lines = status.read_text(encoding="utf-8", errors="replace").splitlines()
            if any(line.startswith(f"Name:\t{NAME}") for line in lines):
                threads[status.parent.name] = [line for line in lines if "State" in line or "ctxt_switches" in line]
    return threads
