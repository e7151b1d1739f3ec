"""Runs an untrusted program: in a clean environment, with limits on time and output, and leaves no process behind.

The program runs in its own session beside a guard, a shell that waits on a pipe from this process. However this process
ends, the pipe closes and the guard kills the group. Processes that left the group are found by a mark in their
environment (Linux).
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

# pyenv's shim chooses a Python by PYENV_*. No LD_* and no PYTHON*: they make a program load other code.
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "PYENV_ROOT", "PYENV_VERSION", "SYSTEMROOT")
MARK = "VETTED_DOCTOR_ASKS"
GUARDED = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&-; exec "$@"'


class NoAnswerError(Exception):
    """A program gave no answer within its limits; the message says how."""


def ask(argv: Sequence[str], seconds: float, limit: int) -> bytes:
    """The standard output of a program, `limit` bytes at most. It and all that it started are then killed.

    Raises NoAnswerError when it prints more, takes more than `seconds`, or cannot be run.
    """
    mark = secrets.token_hex(16)
    environ = {name: os.environ[name] for name in PASSED if name in os.environ}
    guard = ["/bin/sh", "-c", GUARDED, "sh"] if os.name == "posix" else []
    try:
        child = subprocess.Popen(
            [*guard, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**environ, MARK: mark}, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NoAnswerError("cannot be run") from error
    assert child.stdin is not None and child.stdout is not None
    printed = _Printed(child.stdout, limit)
    try:
        ends = time.monotonic() + seconds
        printed.start()
        while child.poll() is None and not printed.full and time.monotonic() < ends:
            time.sleep(0.005)
        late = child.returncode is None and not printed.full
    finally:
        _end(child, mark)
    # The pipe ends now, unless a process that escaped has it open: then this does not wait for it.
    printed.join(1)
    if printed.full:
        raise NoAnswerError(f"prints more than {limit // 1024} KB")
    if late:
        raise NoAnswerError(f"does not answer within {seconds:g} seconds")
    return printed.data


class _Printed(threading.Thread):
    """The output in a pipe, up to a limit."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        super().__init__(daemon=True)
        self.pipe, self.limit, self.data, self.full = pipe, limit, b"", False

    def run(self) -> None:
        with suppress(OSError, ValueError), self.pipe:
            while chunk := os.read(self.pipe.fileno(), 65536):
                self.data += chunk
                if len(self.data) > self.limit:
                    self.full = True
                    return


def _end(child: subprocess.Popen[bytes], mark: str) -> None:
    if os.name == "posix":
        with suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()
    with suppress(OSError):
        assert child.stdin is not None
        child.stdin.close()
    marked = f"{MARK}={mark}".encode()
    for _ in range(20):  # a process may start another just before it is killed
        left = [process for process in _processes() if marked in _environ(process)]
        if not left:
            return
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _environ(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
