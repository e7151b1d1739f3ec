"""The folder that a run works in: one run at a time, in the background if asked for, and how far it is."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .stop import NO, NOT_YET, STORAGE, StopError, say

RESULTS, STATUS, LOG = "results", "status.json", "run.log"


def hold(to: Path) -> int:
    """Lock the folder against other runs; the kernel releases the lock when the last process that holds it ends."""
    to.mkdir(parents=True, exist_ok=True)
    if (to / RESULTS).exists() and not (to / "lock").exists():
        raise StopError(
            STORAGE, f"{to / RESULTS} is there and no earlier run wrote it, so it stays as it is",
            "--to names a folder of other work", "name another folder with --to",
        )  # fmt: skip
    descriptor = os.open(to / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another run is at work in {to}; waiting for it to finish")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    (to / RESULTS / STATUS).unlink(missing_ok=True)  # it is of an earlier run
    return descriptor


def remove_others(to: Path, short: str) -> None:
    """Remove the folders that runs of earlier bundles wrote, and nothing else."""
    for path in to.iterdir():
        match = re.fullmatch(r"(bundle|parts|python|verifier)-([0-9a-f]{12})(\.partial)?", path.name)
        if match and match[2] != short:
            shutil.rmtree(path, ignore_errors=True)


def background(to: Path, lock: int, arguments: Sequence[str]) -> None:
    """Start the same command anew, in a session of its own, and say how to ask for it. It takes over the lock."""
    results = to / RESULTS
    results.mkdir(exist_ok=True)
    again = [argument for argument in arguments if argument != "--background"]
    with (results / LOG).open("wb") as log:
        # A lock belongs to the open file, which the child inherits: at no moment is the folder free.
        child = subprocess.Popen(
            [sys.executable, sys.argv[0], *again, "--lock", str(lock)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(lock,),
        )  # fmt: skip
    print(f"at work in the background, process {child.pid}; ask with: python3 {sys.argv[0]} --to {to} --status")


def status(to: Path) -> int:
    """Say how far the run is. Exit codes: 0 it ended well, 1 it did not, 3 it has not ended."""
    results = to / RESULTS
    at_work = busy(to / "lock")
    try:
        state: dict[str, Any] = json.loads((results / STATUS).read_text())
    except (OSError, ValueError):
        state = {}
    ended = state.get("exit")
    if ended is not None and not at_work:
        print(f"ended: {state.get('answer')}\n{_probes(state)}".rstrip())
        return 0 if ended == 0 else NO
    if at_work:
        print(f"at work: {state.get('step') or end_of(results / LOG)}\n{_probes(state)}".rstrip())
        return NOT_YET
    if not (to / RESULTS / LOG).is_file() and not state:
        raise StopError(NOT_YET, f"nothing has run in {to}", "", "the same command without --status")
    print(f"ended early: {state.get('step') or 'before the suite'}\n{_probes(state)}".rstrip())
    print(end_of(results / LOG, 6))
    print("next: the same command with --background, which continues where it stopped")
    return NO


def _probes(state: dict[str, Any]) -> str:
    outcomes = state.get("probes") or {}
    counts = {outcome: list(outcomes.values()).count(outcome) for outcome in dict.fromkeys(outcomes.values())}
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"probes: {len(outcomes)} of {state.get('of') or '?'} ended: {listed}" if outcomes else ""


def end_of(log: Path, lines: int = 1) -> str:
    """The last lines of a log; empty where there is none."""
    try:
        return "\n".join(log.read_text(errors="replace").strip().splitlines()[-lines:])
    except OSError:
        return ""


def busy(lock: Path) -> bool:
    """Whether a run holds a lock file."""
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
