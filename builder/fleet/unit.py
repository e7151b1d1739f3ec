"""The unit of work: one stack in, one statement out. It runs on a node, and changes nothing there or in the clone.

A unit has a copy of what `vetted certify` writes, and links to what it reads. So units of one stack on several kinds of
GPU do not meet, and a unit that is killed and started again finds nothing of its first run.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from builder.base import errors, text
from builder.base.project import Project

READ = ("smoke", "runtime", "images", "advisories", "requirements.txt")
WRITTEN = ("docs", "doctor", "README.md", "README.zh-CN.md")  # what is generated from certificates
TAIL = 2000  # characters of an error


@dataclass(frozen=True)
class Unit:
    """A stack, how its suite runs, and the GPUs of one kind that it gets, if any."""

    stack: str
    engine: str
    gpu: str = ""
    gpus: int = 0

    @property
    def name(self) -> str:
        return f"{self.stack}-{self.gpu}-{self.gpus}" if self.gpus else self.stack


@dataclass(frozen=True)
class Outcome:
    """What came of a unit: the bytes of its statement, a certificate or a report; or the error, and no statement.

    `log`: the file that has what its command printed, where there is one.
    """

    unit: Unit
    node: str
    seconds: float
    statement: bytes = b""
    error: str = ""
    log: str = ""


def run(root: str, unit: Unit, state: str = "", log: str = "") -> Outcome:
    """Certify a stack of the clone at `root`. `state`: where downloads and environments are kept; "": nowhere.

    `log`: the file for what the command prints; "": stderr, which a scheduler keeps.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vetted-fleet-") as temporary:
        project = _project(Project(Path(root)), unit.stack, Path(temporary) / "project")
        environment = {
            **os.environ, "VETTED_STATE": state or str(Path(temporary) / "state"),
            "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
        }  # fmt: skip
        environment.pop("VETTED_STACKS", None)
        with _log(log) as to:
            done = _followed(_command(unit), project, environment, to)
            print(text.printable(done.stdout), file=to, flush=True)
        statement, error = _statement(done)
    return Outcome(unit, socket.gethostname(), time.monotonic() - began, statement, error, log)


def _command(unit: Unit) -> list[str]:
    return [sys.executable, "-m", "builder", "certify", unit.stack, "--engine", unit.engine, "--force", "--json"]


@contextmanager
def _log(path: str) -> Iterator[IO[str]]:
    if not path:
        yield sys.stderr
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", encoding="utf-8") as file:
        yield file


def _followed(argv: list[str], cwd: Path, env: Mapping[str, str], log: IO[str]) -> subprocess.CompletedProcess[str]:
    """Run a command. What it says is in the log as soon as it is said: a suite runs for minutes, or hangs."""
    lines = []
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as answer,
        subprocess.Popen(
            argv, cwd=cwd, env=env, stdout=answer, stderr=subprocess.PIPE, encoding="utf-8", errors="replace"
        ) as child,
    ):
        try:
            assert child.stderr is not None
            for line in child.stderr:
                lines.append(line)
                print(text.printable(line), end="", file=log, flush=True)
            child.wait()
        except BaseException:
            child.kill()
            raise
        answer.seek(0)
        return subprocess.CompletedProcess(argv, child.returncode, answer.read(), "".join(lines))


def _project(home: Project, stack: str, target: Path) -> Path:
    """A project that reads the clone's files, and writes to its own folder."""
    lockfiles = target / "lockfiles"
    lockfiles.mkdir(parents=True)
    for path in home.stacks.iterdir():
        if path.name != stack:
            (lockfiles / path.name).symlink_to(path)
    shutil.copytree(home.stack_dir(stack), lockfiles / stack)
    for name in READ:
        if (home.root / name).exists():
            (target / name).symlink_to(home.root / name)
    for name in WRITTEN:
        if (home.root / name).is_dir():
            shutil.copytree(home.root / name, target / name)
        elif (home.root / name).exists():
            shutil.copyfile(home.root / name, target / name)
    return target


def _statement(done: subprocess.CompletedProcess[str]) -> tuple[bytes, str]:
    """The bytes of the statement that a command wrote, or its error."""
    try:
        answer = json.loads(done.stdout)
        if error := answer.get("error"):
            return b"", str(errors.VettedError(error["what"], cause=error["cause"], next_step=error["next"]))
        return Path(answer["certificate"] or answer["report"]).read_bytes(), ""
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return b"", f"exit code {done.returncode}\n{(done.stderr or done.stdout)[-TAIL:]}"
