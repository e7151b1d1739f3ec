"""End the processes of a run together with `vetted train`. `python -m runtime.parent MODULE [ARGUMENT]...`"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import runpy
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

TRAIN = "VETTED_TRAIN"  # the process ID of `vetted train`
CLIENT = "VETTED_CLIENT"  # set by compose.yaml: the client that started the container keeps standard input open
NO_INPUT = 2.0  # seconds: an input that ends earlier was empty from the start, such as /dev/null
FAILED = "ChildFailedError"  # torchrun's, also below accelerate; not imported, because torch would be
_PR_SET_PDEATHSIG = 1


def follow() -> None:
    """End this process when its parent ends, and now if `vetted train` has ended already.

    Call it in every process between `vetted train` and the ranks: a launcher starts its ranks in their own session.
    Interrupts are ignored here, since Slurm sends them to all processes: `vetted train` ends the run with a checkpoint.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if TRAIN not in os.environ:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if not _descends_from(int(os.environ[TRAIN])):
        sys.exit("vetted: the command that started this run has ended")


def _descends_from(ancestor: int) -> bool:
    process = os.getpid()
    while process > 0:
        if process == ancestor:
            return True
        try:
            status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        process = int(re.search(r"^PPid:\s*(\d+)$", status, re.MULTILINE)[1])  # type: ignore[index]
    return False


def launch(module: str) -> None:
    """Run a launcher. Of a rank that failed only its own words are shown, and its exit status is that of the run."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as error:
        if type(error).__name__ != FAILED:
            raise
        rank, failure = error.get_first_failure()  # type: ignore[attr-defined]
        if failure.exitcode > 0:
            sys.exit(failure.exitcode)
        print(f"vetted: rank {rank} was ended by {signal.Signals(-failure.exitcode).name}", file=sys.stderr)
        sys.exit(128 - failure.exitcode)  # as shells write it


def on_disconnect(callback: Callable[[], None]) -> threading.Thread | None:
    """Call `callback` when the attached client exits: Docker then closes the container's standard input.

    `docker compose run` without a terminal forwards no signals, so this is how a container notices Ctrl-C.
    """
    if CLIENT not in os.environ or not _is_pipe(0):
        return None
    started = time.monotonic()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 65536):
                pass
        if time.monotonic() - started > NO_INPUT:
            callback()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return thread


def _is_pipe(descriptor: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except OSError:
        return False


if __name__ == "__main__":
    follow()
    del sys.argv[0]
    launch(sys.argv[0])
