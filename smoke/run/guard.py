"""A watcher and a worker that clean up after each other, so that no single kill leaves anything behind.

The watcher is the process that the caller started; the worker does the work. Both adopt orphans. When the watcher is
killed, the kernel signals the worker, which ends everything; when the worker is killed, the watcher ends everything.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from smoke.run import linux

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """The caller ends the run: by a signal, or by closing our input or output."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def _stop(number: int, _frame: FrameType | None) -> None:
    for other in _STOP:  # a second signal must not interrupt the clean-up
        signal.signal(other, signal.SIG_IGN)
    raise Stopped(128 + number)


def _clean(directory: Path) -> None:
    linux.kill_descendants()
    linux.remove(directory)


def _work(work: Callable[[Path], int], directory: Path, watcher: int) -> int:
    try:
        for number in _STOP:
            signal.signal(number, _stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
        linux.adopt_orphans()
        linux.die_with_parent(watcher, signal.SIGTERM)
        return work(directory)
    except Stopped as stopped:
        return stopped.status
    finally:
        for number in _STOP:
            signal.signal(number, signal.SIG_IGN)
        _clean(directory)


def guarded(work: Callable[[Path], int]) -> int:
    """Call `work` with a temporary directory in a child process, and return the exit status.

    However the child ends, none of its processes and nothing of the directory remains. A child killed by a signal
    has the status that shells use: 128 plus the signal's number.
    """
    linux.adopt_orphans()
    watcher = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    directory = Path(tempfile.mkdtemp(prefix="smoke-"))
    worker = os.fork()
    if worker == 0:
        status = 1
        try:
            status = _work(work, directory, watcher)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def forward(number: int, _frame: FrameType | None) -> None:
        os.kill(worker, number)

    for number in _STOP:
        signal.signal(number, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP)
    _, status = os.waitpid(worker, 0)
    for number in _STOP:
        signal.signal(number, signal.SIG_IGN)
    _clean(directory)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        print(f"smoke: the supervisor was killed by {signal.Signals(-code).name}", file=sys.stderr)
        return 128 - code
    return code
