"""Several ranks of one probe: forked and ended together; the first one that fails is reported."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from smoke.run import linux
from smoke.run.job import Job

# How long the other ranks may run after one has failed: enough to log that they lost it. Most of them only wait for it
# in a collective operation.
_GRACE_S = 1.0


def run(job: Job, work: Callable[[Job, int], int]) -> int:
    """Run `work(job, rank)` in one forked process per rank and return their common exit status.

    When a rank fails, by an exit status, by a signal or by ending without a result, the other ranks are killed and
    this process ends in the same way. The job records which rank failed.
    """
    running = {_fork(job, rank, work): rank for rank in range(job.ranks)}
    while running:
        pid, wait_status = os.wait()
        if pid not in running:
            continue
        rank = running.pop(pid)
        status = os.waitstatus_to_exitcode(wait_status)
        if status != 0 or not job.report(rank).done:
            job.set_failed_rank(rank)
            _end(running)
            return status if status >= 0 else _die_by(-status)
    return 0


def _fork(job: Job, rank: int, work: Callable[[Job, int], int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        linux.die_with_parent(parent)
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(job.ranks),
            LOCAL_WORLD_SIZE=str(job.ranks),
        )
        _share_cores(job.ranks)
        status = work(job, rank)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)


def _share_cores(ranks: int) -> None:
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):  # imported before the fork, it no longer reads the environment
        torch.set_num_threads(threads)


def _end(running: dict[int, int]) -> None:
    deadline = time.monotonic() + _GRACE_S
    while running and time.monotonic() < deadline:
        for pid in list(running):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del running[pid]
        time.sleep(0.01)
    linux.signal_all(set(running), signal.SIGKILL)
    for pid in running:
        os.waitpid(pid, 0)


def _die_by(number: int) -> NoReturn:
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    while True:  # until the signal arrives
        time.sleep(1)
