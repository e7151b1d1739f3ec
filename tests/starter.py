"""Commands as forks of a process that has imported the libraries once: the imports take longer than most commands.

What is forked imports the project's own modules itself, so it starts as any command does.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

LIBRARIES = (
    "typer.main", "typer.core", "rich.console", "rich.progress", "rich.table", "rich.text", "rich.syntax", "pydantic",
    "packaging.requirements", "packaging.metadata", "packaging.utils", "jinja2", "filelock", "email.parser", "tomllib",
    "unidiff", "fractions", "decimal", "configparser", "ssl", "uuid", "concurrent.futures", "subprocess", "tarfile",
)  # fmt: skip
# Python reads these when it starts: with others, a command needs a start of its own.
AT_START = ("PYTHON", "LC_", "LANG")


def usable(env: Mapping[str, str]) -> bool:
    """May a command with this environment be forked from the process, which was started with another?"""
    return _at_start(env) == _starter().at_start


def run(module: str, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> tuple[int, str, str]:
    """Run `python -m module` with its input empty; the exit code (negative for a signal), stdout and stderr."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        job = {"module": module, "argv": list(argv), "cwd": str(cwd), "env": dict(env)}
        code = _starter().run(job, out, err)
        return code, _text(out), _text(err)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(AT_START)}


class _Starter:
    """The process, and the socket that it takes jobs from."""

    def __init__(self) -> None:
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
        self.at_start = _at_start(env)
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.starter", str(theirs.fileno())],
                env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def run(self, job: Mapping[str, Any], out: IO[bytes], err: IO[bytes]) -> int:
        content = json.dumps(job).encode()
        socket.send_fds(self._socket, [len(content).to_bytes(8, "big")], [out.fileno(), err.fileno()])
        self._socket.sendall(content)
        answer = self._socket.recv(8)
        assert answer, "the starter of commands has ended"
        return int(answer)


@lru_cache(maxsize=1)
def _starter() -> _Starter:
    return _Starter()


def _next_job(jobs: socket.socket) -> dict[str, Any]:
    """Fork a child for each job; return in the child, which has become a process that only runs it."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(jobs, 8, 2)
        if not head:
            sys.exit()  # the tests have ended
        size, content = int.from_bytes(head, "big"), b""
        while len(content) < size:
            content += jobs.recv(size - len(content))
        pid = os.fork()
        if pid == 0:
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, jobs.detach()):
                os.close(descriptor)
            job: dict[str, Any] = json.loads(content)
            return job
        for descriptor in descriptors:
            os.close(descriptor)
        jobs.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def main() -> None:
    """Wait for jobs; in the child of one, run it."""
    jobs = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for library in LIBRARIES:
        importlib.import_module(library)
    gc.freeze()
    job = _next_job(jobs)
    # What a shell runs in the background ignores interrupts, and so would this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["env"])
    os.chdir(job["cwd"])
    sys.argv = [job["module"], *job["argv"]]
    sys.path[0] = job["cwd"]
    runpy.run_module(job["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
