"""The process of a run: how it ends on a signal, with a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime import parent

STOP = ".stop"  # in the folder of a run: stop after the current step
STOP_FILE = "VETTED_STOP"  # where it is: each node has one, and looks for its own
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 1.0  # seconds: Docker's client and its plugin both forward a Ctrl-C, a few milliseconds apart
INTERRUPTED = 130  # the exit status that shells use for Ctrl-C: the run is not complete and can be resumed


def run(argv: Sequence[str], stop: Path, environ: Mapping[str, str]) -> int:
    """Run the script until it ends. The first signal ends it with a checkpoint, a second one at once.

    The first signal creates a file that the ranks look for after every step; of several nodes, any one's file ends
    them all. The ranks themselves get no signal: it would reach some of them earlier than others, the launcher before
    all of them, and from a terminal each one twice.
    """
    stop.unlink(missing_ok=True)
    killed, first = False, 0.0
    # Its own process group, because a terminal interrupts a group; runtime.parent ends it when this process is killed.
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, process_group=0,
        env={**environ, parent.TRAIN: str(os.getpid()), STOP_FILE: str(stop)},
    ) as child:  # fmt: skip

        def end(number: int, _frame: object) -> None:
            nonlocal killed, first
            now = time.monotonic()
            if first and (number == signal.SIGHUP or now - first < AGAIN):
                return  # the client exits after its request, or it is the same Ctrl-C
            if first or not _touched(stop):
                killed = True
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                return
            first = now
            with contextlib.suppress(OSError):  # the terminal or the pipe may be closed already
                os.write(2, b"\nvetted: ending with a checkpoint after this step; press Ctrl-C again to end at once\n")

        before = {number: signal.signal(number, end) for number in SIGNALS}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    requested = stop.exists()
    stop.unlink(missing_ok=True)
    if killed or (requested and code == 0):
        return INTERRUPTED
    return code if code >= 0 else 128 - code  # the exit status that shells use for a signal


def _touched(stop: Path) -> bool:
    try:
        stop.touch()
    except OSError:  # the disk is full, or the folder of the run was removed
        return False
    return True
