"""Run a command's Python code in a forked process, in place of a new interpreter.

The forked process has the packages imported already, which saves the fifteen seconds that each new interpreter of a
launcher would need. The code is the command's own, from its entry point on.
"""

from __future__ import annotations

import functools
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from smoke.run import linux
from smoke.run.gpus import Use


def forked(work: Callable[[], Any]) -> int:
    """Call `work` in a forked process, and return the exit status that a program would have, negative for a signal.

    Its output, tracebacks included, goes to the output of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid == 0:
        _become(work)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(work: Callable[[], Any]) -> NoReturn:
    status = 1
    try:
        result = work()
        status = result if isinstance(result, int) else 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)


class Interpreters:
    """What launchers start `python SCRIPT ARGUMENTS` with, in place of subprocess: forks of this process as it is now.

    A launcher has often started CUDA by then, which does not survive a fork. So they are forked by a process that is
    itself forked here. `on_gpu`: a script that allocates nothing on the first GPU has failed.
    """

    def __init__(self, *, on_gpu: bool = False) -> None:
        self._orders, orders = socket.socketpair()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            linux.die_with_parent(parent)
            self._orders.close()
            _serve(orders, on_gpu)
        orders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        os.waitpid(self._pid, 0)

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Ended:
        """In place of subprocess.Popen. Raises ValueError for anything but a script of this interpreter."""
        interpreter, *arguments = map(str, command)
        if os.path.realpath(interpreter) != os.path.realpath(sys.executable) or arguments[0].startswith("-"):
            raise ValueError(f"not a script that this interpreter runs: {command}")
        order = {"arguments": arguments, "env": dict(os.environ if env is None else env)}
        self._orders.sendall(json.dumps(order).encode() + b"\n")
        return Ended(command, int(self._orders.recv(16)))


@dataclass(frozen=True)
class Ended:
    """A script that has ended, as its launcher sees it."""

    args: Sequence[str]
    returncode: int

    def wait(self) -> int:
        """The exit status."""
        return self.returncode


def _serve(orders: socket.socket, on_gpu: bool) -> NoReturn:
    try:
        for order in orders.makefile():
            status = forked(functools.partial(_script, **json.loads(order), on_gpu=on_gpu))
            orders.sendall(str(status).encode())
    finally:
        os._exit(0)


def _script(arguments: list[str], env: Mapping[str, str], on_gpu: bool) -> None:
    os.environ.clear()
    os.environ.update(env)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    use = Use(0) if on_gpu else None
    runpy.run_path(arguments[0], run_name="__main__")
    if use is not None:
        use.require()
