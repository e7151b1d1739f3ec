"""Attacks on the end of a run in an image: it is killed, interrupted twice, or left by its client."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime import parent
from runtime.train import process
from tests.conftest import ROOT

# A launcher as torch's: its ranks have sessions of their own. A rank says who it is and works until it is asked to end.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', 'rank'], start_new_session=True))\n"
RANK = """
import os, pathlib, time
from runtime import parent
parent.follow()
print(os.getpid(), flush=True)
while not pathlib.Path('.stop').exists(): time.sleep(0.01)
"""
RUN = (
    "import os, pathlib, signal, sys; from runtime import parent; from runtime.train import process;"
    "parent.NO_INPUT = 0; process.AGAIN = {again};"
    "parent.on_disconnect(lambda: os.kill(os.getpid(), signal.SIGHUP));"
    "sys.exit(process.run([sys.executable, '-m', 'runtime.parent', 'launcher'], pathlib.Path('.stop'), os.environ))"
)


def start(folder: Path, *, rank: str = RANK, again: float = 0.0) -> subprocess.Popen[str]:
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / "rank.py").write_text(rank)
    return subprocess.Popen(
        [sys.executable, "-c", RUN.format(again=again)], cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))), parent.CLIENT: "1"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(process: int) -> bool:
    """Wait for the end of a process that is no child of this one."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30)[0])
    finally:
        os.close(descriptor)


def test_a_run_goes_on_when_its_command_is_killed(tmp_path: Path) -> None:
    """A rank in its own session ends with `vetted train`, although no signal reaches it."""
    with start(tmp_path) as command:
        assert command.stdout is not None
        rank = int(command.stdout.readline())
        command.kill()
        assert ended(rank)


def test_a_rank_that_starts_after_its_command_was_killed_goes_on(tmp_path: Path) -> None:
    """It looks for the command among its ancestors."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), parent.TRAIN: str(gone.pid)}
    done = subprocess.run(
        [sys.executable, "-c", RANK], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the command that started this run has ended" in done.stderr


def test_a_rank_in_a_session_of_its_own_survives_the_second_interrupt(tmp_path: Path) -> None:
    """After the second interrupt, all end at once."""
    deaf = RANK.replace("while not pathlib.Path('.stop').exists(): time.sleep(0.01)", "time.sleep(600)")
    with start(tmp_path, rank=deaf) as command:
        assert command.stdout is not None and command.stderr is not None
        rank = int(command.stdout.readline())
        command.send_signal(signal.SIGTERM)
        assert (command.stderr.readline(), command.stderr.readline()[:7]) == ("\n", "vetted:")
        command.send_signal(signal.SIGTERM)
        assert command.wait(timeout=30) == process.INTERRUPTED
        assert ended(rank)


# It writes its checkpoint when the test says so.
SLOW = (
    RANK
    + """
print('asked', flush=True)
while not pathlib.Path('go').exists(): time.sleep(0.01)
pathlib.Path('checkpoint').touch()
"""
)


@pytest.mark.parametrize(("number", "again"), [(signal.SIGINT, 600.0), (signal.SIGHUP, 0.0)])
def test_one_interrupt_that_comes_twice_costs_the_checkpoint(tmp_path: Path, number: int, again: float) -> None:
    """Docker's client and its plugin both forward one Ctrl-C, and then the client ends."""
    with start(tmp_path, rank=SLOW, again=again) as command:
        assert command.stdin is not None and command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        assert command.stdout.readline() == "asked\n"
        command.send_signal(number)
        command.stdin.close()
        (tmp_path / "go").touch()
        assert command.wait(timeout=30) == process.INTERRUPTED
    assert (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("number", process.SIGNALS)
def test_an_interrupt_is_lost_when_nobody_reads_what_is_said(tmp_path: Path, number: int) -> None:
    """The pipe of standard error is closed: the run still ends with a checkpoint."""
    with start(tmp_path) as command:
        assert command.stdout is not None and command.stderr is not None
        rank = int(command.stdout.readline())
        command.stderr.close()
        command.send_signal(number)
        assert command.wait(timeout=30) == process.INTERRUPTED
        assert ended(rank)


def test_a_run_in_a_container_goes_on_when_the_client_that_was_attached_to_it_is_gone(tmp_path: Path) -> None:
    """`docker compose run -T` forwards no signal, but Docker closes the container's standard input."""
    with start(tmp_path) as command:
        assert command.stdin is not None and command.stdout is not None
        rank = int(command.stdout.readline())
        command.stdin.close()
        assert command.wait(timeout=30) == process.INTERRUPTED
        assert ended(rank)


@pytest.mark.parametrize(("no_input", "output"), [(600, ""), (0, "asked\n")])
def test_an_input_that_was_empty_from_the_beginning_ends_a_run(no_input: float, output: str) -> None:
    """`< /dev/null` is no client that goes."""
    watch = (
        f"from runtime import parent; parent.NO_INPUT = {no_input};parent.on_disconnect(lambda: print('asked')).join()"
    )
    done = subprocess.run(
        [sys.executable, "-c", watch], env={**os.environ, "PYTHONPATH": str(ROOT), parent.CLIENT: "1"},
        input="", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == output
