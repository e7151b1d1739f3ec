"""Run a command's Python code in a forked process, in place of a new interpreter.

The forked process has the packages imported already, which saves the fifteen seconds that each new interpreter of a
launcher would need. The code is the command's own, from its entry point on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

from smoke.run import linux
from smoke.run.gpus import Use


def forked(work: Callable[[], Any]) -> int:
    """Call `work` in a forked process, and return the exit status that a program would have, negative for a signal.

    Its output, tracebacks included, goes to the output of this process.
    """
    _flush()
    pid = os.fork()
    if pid == 0:
        _become(work)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


@contextlib.contextmanager
def output_in(file: Path) -> Iterator[None]:
    """Keep what this process and those that it forks print in a file; it goes to the output at the end."""
    _flush()
    saved = os.dup(1), os.dup(2)
    with file.open("wb", buffering=0) as sink:
        for stream in (1, 2):
            os.dup2(sink.fileno(), stream)
    try:
        yield
    finally:
        _flush()
        for number, descriptor in enumerate(saved, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdout.write(file.read_text(encoding="utf-8", errors="replace"))


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
        _flush()
        os._exit(status & 0xFF)


class Interpreters:
    """What launchers start `python SCRIPT ARGUMENTS` with, in place of subprocess: forks of this process as it is now.

    A launcher has often started CUDA by then, which does not survive a fork. So they are forked by a process that is
    itself forked here. `on_gpu`: a script that allocates nothing on the first GPU has failed.
    """

    def __init__(self, *, on_gpu: bool = False) -> None:
        self._orders, orders = socket.socketpair()
        _flush()
        self.scripts = 0  # that were started; known at the end of the block
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            _serve(self._orders, orders, on_gpu, parent)
        orders.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.shutdown(socket.SHUT_RDWR)  # ends the process, whoever else holds a copy
        self._orders.close()
        self.scripts = max(0, os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))

    def start(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> Ended:
        """In place of subprocess.Popen. Raises ValueError for anything but a script of this interpreter.

        Raises RuntimeError when the process that runs it has ended.
        """
        interpreter, *arguments = map(str, command)
        if os.path.realpath(interpreter) != os.path.realpath(sys.executable) or arguments[0].startswith("-"):
            raise ValueError(f"not a script that this interpreter runs: {command}")
        order = {"arguments": arguments, "env": dict(os.environ if env is None else env)}
        try:
            self._orders.sendall(json.dumps(order).encode() + b"\n")
            answer = self._orders.recv(16)
        except OSError:
            answer = b""
        if not answer:
            raise RuntimeError("the process that runs the scripts of launchers has ended")
        return Ended(command, int(answer))


@dataclass(frozen=True)
class Ended:
    """A script that has ended, as its launcher sees it."""

    args: Sequence[str]
    returncode: int

    def wait(self) -> int:
        """The exit status."""
        return self.returncode


def _serve(other_end: socket.socket, orders: socket.socket, on_gpu: bool, parent: int) -> NoReturn:
    """Run a script for each order. The exit status is the number of scripts."""
    scripts = 0
    try:
        linux.die_with_parent(parent)
        other_end.close()
        for order in orders.makefile():
            scripts += 1
            status = forked(functools.partial(_script, orders, os.getpid(), **json.loads(order), on_gpu=on_gpu))
            orders.sendall(str(status).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        _flush()
        os._exit(scripts & 0x7F)


def _script(orders: socket.socket, parent: int, arguments: list[str], env: Mapping[str, str], on_gpu: bool) -> None:
    linux.die_with_parent(parent)
    orders.close()
    os.environ.clear()
    os.environ.update(env)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent))
    use = Use(0) if on_gpu else None
    runpy.run_path(arguments[0], run_name="__main__")
    if use is not None:
        use.require()
