"""The folder of a first contact: one run at a time, in the background if asked for, and how far it is.

Every event of the suite is a line of events.jsonl as soon as it comes, and a run goes on from there. A machine may end
a command after minutes, and give few files back: hence a status that waits, and everything in one file.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from builder.bundle.unbundle.stop import NO, NOT_YET, StopError, readable_size
from builder.bundle.unbundle.work import busy, end_of
from scripts.first_contact_machine import write

EVENTS, EARLIER, RUN, LOG, LOCK = "events.jsonl", "earlier.jsonl", "run.json", "run.log", "lock"
SAME = ("suite", "device", "python")  # what events must have in common to count as those of one run
GOOD = ("passed", "not-run")
TICK_S, TRIES = 0.2, 5

Event = dict[str, Any]


def hold(out: Path) -> int:
    """Lock the folder against other runs; the kernel releases the lock when the last process that holds it ends."""
    descriptor = os.open(out / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        time.sleep(TICK_S)  # a `status` may be looking
    else:
        os.close(descriptor)
        ask = f"python3 {sys.argv[0]} status --out {out}"
        raise StopError(NOT_YET, f"another run is at work in {out}", next_step=ask)
    if run := state(out):
        write(out / RUN, {**run, "exit": None})  # that was of an earlier run
    return descriptor


def background(out: Path, lock: int, words: Sequence[str]) -> None:
    """Start the same command anew, in a session of its own, which outlives this command. It takes over the lock."""
    again = [word for word in words if word != "--background"]
    with (out / LOG).open("ab") as log:
        # A lock belongs to the open file, which the child inherits: at no moment is the folder free.
        child = subprocess.Popen(
            [sys.executable, sys.argv[0], *again, "--lock", str(lock)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, pass_fds=(lock,),
        )  # fmt: skip
    print(f"at work in the background, process {child.pid}; ask with: python3 {sys.argv[0]} status --out {out}")


# --- what has come -------------------------------------------------------------------------------------------------


def state(out: Path) -> dict[str, Any]:
    """What the last run here was of, and how it ended (`exit`; None: not yet, or early). Empty where none began."""
    with suppress(OSError, ValueError):
        content = json.loads((out / RUN).read_text())
        return content if isinstance(content, dict) else {}
    return {}


def begin(out: Path, run: dict[str, Any]) -> None:
    """Write down what a run is of. Earlier events count if they are of the same, or of fewer wheels; or they go aside.

    Keys: those of SAME, `carried` (the wheels' distributions) and `probes` (those that are asked for).
    """
    before, events = state(out), out / EVENTS
    whole = events.read_bytes() if events.is_file() else b""
    whole = whole[: whole.rfind(b"\n") + 1]  # a run that was killed may have left half a line
    if whole and not (_alike(before, run) and set(before["carried"]) <= set(run["carried"])):
        print(f"{out} has events of another suite, device, Python or set of wheels: now in {EARLIER}", flush=True)
        with (out / EARLIER).open("ab") as earlier:
            earlier.write(whole)
        whole = b""
    partial = events.with_name(f".{EVENTS}.partial")
    partial.write_bytes(whole)
    partial.replace(events)
    write(out / RUN, {**run, "exit": None})


def _alike(before: dict[str, Any], run: dict[str, Any]) -> bool:
    return all(key in before and before[key] == run[key] for key in SAME)


def end(out: Path, code: int) -> None:
    """Write down that a run has ended by itself."""
    write(out / RUN, {**state(out), "exit": code})


def read(out: Path) -> list[Event]:
    """Every event so far. Half a line is none."""
    events = []
    for line in (out / EVENTS).read_bytes().splitlines() if (out / EVENTS).is_file() else ():
        with suppress(ValueError):
            events.append(json.loads(line))
    return events


def ends(out: Path) -> dict[str, Event]:
    """How each probe has ended, the last time."""
    return {event["probe"]: event for event in read(out) if event["event"] == "end"}


def settled(out: Path) -> set[str]:
    """The probes that are not run again. One that lacked a package has not run: more wheels may have come."""
    return {
        name for name, event in ends(out).items() if not (event["reason"] or "").startswith("not installed: ")
    }  # fmt: skip


# --- how far it is -------------------------------------------------------------------------------------------------


def status(out: Path, wait_s: float) -> int:
    """Say how far the run is, at the latest after so many seconds. 0: it ended well, 1: it did not, 3: not ended."""
    deadline = time.monotonic() + wait_s
    while (at_work := busy(out / LOCK)) and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(TICK_S, left))
    run = state(out)
    if not at_work and not run:
        start = f"python3 {sys.argv[0]} run --out {out} --background"
        raise StopError(NOT_YET, f"nothing has run in {out}", next_step=start)
    print(_summary(out, run, at_work))
    if at_work:
        return NOT_YET
    if run.get("exit") is None:
        print(f"{end_of(out / LOG, 6)}\nnext: the same run again, which continues where it stopped")
        return NO
    return 0 if run["exit"] == 0 else NO


def _summary(out: Path, run: dict[str, Any], at_work: bool) -> str:
    """A line on what goes on, one on how many probes have ended, and one for each that is red."""
    events, probes = read(out), run.get("probes", [])
    last = events[-1] if events else {"event": "nothing"}
    came = {name: event for name, event in ends(out).items() if name in probes}
    now = {"begin": f"in {last.get('probe')}", "start": "importing packages", "finish": "at the end"}
    word = "at work" if at_work else "ended early" if run.get("exit") is None else "ended"
    where = "" if word == "ended" else f": {now.get(last['event'], 'between two probes')}"
    outcomes = [event["outcome"] for event in came.values()]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in dict.fromkeys(outcomes))
    red = [f"{name}: {_reason(event)}" for name, event in came.items() if event["outcome"] not in GOOD]
    return "\n".join([f"{word}{where}", f"{len(came)} of {len(probes)} probes have ended: {counts or 'none'}", *red])


def _reason(event: Event) -> str:
    return f"{event['outcome']}: {(event['reason'] or '').partition(chr(10))[0][:200]}"


def pack(out: Path, file: Path) -> None:
    """Write all of the folder into one file, for a machine that gives back few."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f".{file.name}.partial")
    with tarfile.open(partial, "w:gz") as archive:
        for path in sorted(out.iterdir()):
            if path.is_file() and path.name != LOCK and not path.name.startswith(".") and path != file:
                archive.add(path, f"{out.resolve().name}/{path.name}")
    partial.replace(file)
    print(f"{file}: {readable_size(file.stat().st_size)}", flush=True)
