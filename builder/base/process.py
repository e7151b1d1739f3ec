"""Runs other programs, so that none outlives the command that started it.

Every program runs in a process group of its own, together with a guard: a shell that waits on a pipe from this process.
When this process ends in any way (SIGKILL included), the pipe closes and the guard kills the group, grandchildren too.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from builder.base import environment, errors


@dataclass(frozen=True)
class Result:
    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


Stream = int | IO[bytes] | IO[str] | None


@contextmanager
def running(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    umask: int = -1,
    tool: str = "",
) -> Iterator[subprocess.Popen[str]]:
    """Start a program; at the end of the block, its whole process group is killed.

    Its environment is `env`, and what environment.py allows it or `tool`, where it starts that program. `umask`: that
    of this process unless it is set. Raises MissingToolError when the program does not exist.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", "read _; kill -KILL 0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    child: subprocess.Popen[str] | None = None
    try:
        try:
            child = subprocess.Popen(
                list(argv),
                env=environment.of(tool or argv[0], env),
                cwd=cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                text=True,
                errors="replace",
                process_group=guard.pid,
                umask=umask,
            )
        except FileNotFoundError as error:
            raise errors.MissingToolError(
                f"{argv[0]} is not installed", next_step="scripts/install-engine (Debian 12), or install it your way"
            ) from error
        yield child
    finally:
        with suppress(ProcessLookupError):
            os.killpg(guard.pid, signal.SIGKILL)
        if child is not None:
            child.wait()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        if guard.stdin is not None:
            guard.stdin.close()
        guard.wait()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    tool: str = "",
) -> Result:
    """Run a program to its end and keep its output. The caller judges its exit code."""
    with running(argv, env=env, cwd=cwd, tool=tool) as child:
        try:
            stdout, stderr = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise errors.VettedError(f"no answer within {timeout:.0f} seconds: {shlex.join(argv)}") from error
    return Result(tuple(argv), child.returncode, stdout or "", stderr or "")


def check(
    what: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    next_step: str = "",
    tool: str = "",
) -> Result:
    """Run a program that must succeed; else raise the error that fits its output. `what` names the step in it."""
    result = run(argv, env=env, cwd=cwd, tool=tool)
    if result.returncode != 0:
        raise errors.from_tool(what, result.output, next_step=next_step)
    return result
