"""Asking a program: with a clean environment, for so long and so much, and nothing of it is left behind.

It runs in a session of its own beside a guard, a shell that waits on a pipe from this process: however this process
ends, the pipe closes and the guard kills the group. What left the group is found by a mark in its environment (Linux).
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

# pyenv's shim chooses a Python by its two. No LD_*, no PYTHON*: they would load something else.
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "PYENV_ROOT", "PYENV_VERSION", "SYSTEMROOT")
MARK = "VETTED_DOCTOR_ASKS"
GUARDED = 'exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&-; exec "$@"'


class NoAnswerError(Exception):
    """A program did not answer as asked; the message says how."""


def ask(argv: Sequence[str], seconds: float, limit: int) -> bytes:
    """What a program prints, up to a limit; it is gone afterwards, with all that it started. Raises NoAnswerError."""
    mark = secrets.token_hex(16)
    surroundings = {name: os.environ[name] for name in PASSED if name in os.environ}
    guard = ["/bin/sh", "-c", GUARDED, "sh"] if os.name == "posix" else []
    try:
        child = subprocess.Popen(
            [*guard, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**surroundings, MARK: mark}, start_new_session=True,
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
    # What was printed lies in the pipe. It ends now, unless somebody who got away holds it: then it is not waited for.
    printed.join(1)
    if printed.full:
        raise NoAnswerError(f"prints more than {limit // 1024} KB")
    if late:
        raise NoAnswerError(f"does not answer within {seconds:g} seconds")
    return printed.data


class _Printed(threading.Thread):
    """What comes out of a pipe, as far as anybody wants to know."""

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
    wanted = f"{MARK}={mark}".encode()
    for _ in range(20):  # who is killed may have started another just before
        left = [one for one in _processes() if wanted in _surroundings(one)]
        if not left:
            return
        for one in left:
            with suppress(OSError):
                os.kill(one, signal.SIGKILL)


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def _surroundings(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
