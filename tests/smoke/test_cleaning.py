"""However a run is ended, no process and no file of it remains."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run, wait_until


def lasting(start: Callable[..., Run]) -> Run:
    """A run in the middle of a probe with two ranks, each of which has started a stray process."""
    run = start("lasting", {"device": "cpu"})
    wait_until(lambda: len(list(run.directory.rglob("started-*"))) == 2)
    return run


def process(run: Run, pick: Callable[[int, list[str]], bool]) -> int:
    """The only process of the run that `pick` accepts."""
    (match,) = (pid for pid, command in run.processes().items() if pick(pid, command))
    return match


def parent(pid: int) -> int:
    """The parent of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))


def close_input(run: Run) -> None:
    """The caller is gone."""
    assert run.process.stdin
    run.process.stdin.close()


def kill_watcher(run: Run) -> None:
    """Kill what the caller started."""
    run.process.kill()


def kill_worker(run: Run) -> None:
    """Kill the process that does the work."""
    os.kill(process(run, lambda pid, _: parent(pid) == run.process.pid), signal.SIGKILL)


def terminate(run: Run) -> None:
    """Ask politely."""
    run.process.terminate()


def kill_both(run: Run) -> None:
    """Kill watcher and worker at once: what they started is left to the kernel."""
    os.kill(run.process.pid, signal.SIGSTOP)
    kill_worker(run)
    run.process.kill()


@pytest.mark.parametrize(
    ("end", "status"),
    [(close_input, 1), (kill_watcher, -signal.SIGKILL), (kill_worker, 128 + 9), (terminate, 128 + 15)],
)
def test_nothing_remains(start: Callable[..., Run], end: Callable[[Run], None], status: int) -> None:
    """Strays, which have gone into sessions of their own, included."""
    run = lasting(start)
    assert len(run.processes()) >= 7  # watcher, worker, zygote, child, two ranks, and two strays but for a slow start
    end(run)
    assert run.status() == status
    wait_until(lambda: run.processes() == {})
    assert list(run.directory.iterdir()) == []


def test_even_two_kills_leave_no_process_of_the_chain(start: Callable[..., Run]) -> None:
    """The kernel takes zygote, child and ranks down with their parents; only strays could be missed."""
    run = lasting(start)
    strays = {pid for pid, command in run.processes().items() if command[0] == "sleep"}
    kill_both(run)
    wait_until(lambda: run.processes().keys() <= strays)
    for pid in run.processes():
        os.kill(pid, signal.SIGKILL)


def test_output_closed_ends_the_run(start: Callable[..., Run]) -> None:
    """Nobody reads the events any more."""
    run = start("faulty", {"probes": ["good", "good-fresh", "hang", "noisy"]})
    assert run.process.stdout
    run.process.stdout.readline()
    run.process.stdout.close()
    assert run.status() == 1
    assert run.processes() == {}
    assert list(run.directory.iterdir()) == []


def test_lost_zygote_loses_nothing_else(start: Callable[..., Run]) -> None:
    """A kill from outside is reported, and the run comes to its end."""
    run = lasting(start)
    os.kill(
        process(run, lambda pid, command: "smoke.run.zygote" in command and parent(pid) not in zygotes(run)),
        signal.SIGKILL,
    )
    end = next(event for event in run.events() if event["event"] == "end")
    assert (end["outcome"], end["reason"][-7:]) == ("crashed", "SIGKILL")
    assert run.status() == 0
    assert run.processes() == {}


def zygotes(run: Run) -> set[int]:
    """The zygote and everything forked from it."""
    return {pid for pid, command in run.processes().items() if "smoke.run.zygote" in command}
