"""The zygote: a process that imports the heavy packages once and forks a child for every probe.

The imports take some fifteen seconds, a fork milliseconds. The zygote must do nothing that does not survive a fork: no
CUDA, and no torch operation, because the child would lack the threads of its OpenMP pool.

The runner writes one job per line to the zygote's standard input; the zygote answers on its standard output.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoke.run import child, gpus, linux
from smoke.run.job import Job

# Packages in import order, each with the modules that it loads lazily and that training needs.
PRELOAD = {
    "torch": ("torch.distributed", "torch._dynamo"),
    "transformers": ("transformers.trainer", "transformers.models.qwen2.modeling_qwen2"),
    "datasets": (),
    "peft": (),
    "deepspeed": (),
    "bitsandbytes": (),
    "vllm": ("vllm.entrypoints.llm", "vllm.model_executor.models.qwen2"),
    "trl": ("trl.trainer.grpo_trainer",),
}


# The longest answer of a zygote, in bytes; a process that writes more is not our zygote.
_LONGEST = 1 << 16
_READS_WITHIN_S = 60.0


@dataclass(frozen=True)
class Stack:
    """The stack's interpreter, and the user and group that run the probes (None for the supervisor's own)."""

    python: str
    user: tuple[int, int] | None = None

    @property
    def account(self) -> dict[str, Any]:
        """Arguments for subprocess that start a program as this user, without root's privileges."""
        own: dict[str, Any] = {"preexec_fn": linux.give_up_privileges}
        if self.user is not None:
            own |= {"user": self.user[0], "group": self.user[1], "extra_groups": []}
        return own

    def hand_over(self, *directories: Path) -> None:
        """Give the directories to the user of the probes, inner ones first: a user could replace its own by links."""
        if self.user is not None:
            for directory in sorted(directories, key=lambda path: len(path.parts), reverse=True):
                os.chown(directory, *self.user, follow_symlinks=False)


def account(text: str) -> tuple[int, int]:
    """The user and the group of "UID:GID". Raises ValueError."""
    user, _, group = text.partition(":")
    return int(user), int(group)


class Zygote:
    """The runner's handle of a zygote. Its answers are not trusted: it runs the stack's code."""

    def __init__(self, packages: Sequence[str], environment: Mapping[str, str], directory: Path, stack: Stack) -> None:
        """Start a zygote that imports `packages` and writes its log to `directory`."""
        self.log = directory / "zygote.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [stack.python, "-m", "smoke.run.zygote", str(os.getpid()), *packages],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                cwd=directory,
                bufsize=0,
                **stack.account,
            )
        assert self._process.stdin and self._process.stdout
        self._jobs, self.output = self._process.stdin, self._process.stdout
        for pipe in (self._jobs, self.output):  # a zygote must not block the supervisor
            os.set_blocking(pipe.fileno(), False)
        self._unread = b""

    @property
    def pid(self) -> int:
        """The zygote's process ID."""
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status (negative for a signal), or None while it runs."""
        return self._process.poll()

    def start(self, job: Job) -> None:
        """Have the zygote fork a child that runs `job`. Use `status` to see whether the zygote is still alive.

        A zygote that does not read its jobs is killed.
        """
        unsent = json.dumps(job.to_json()).encode() + b"\n"
        deadline = time.monotonic() + _READS_WITHIN_S
        while unsent:
            try:
                unsent = unsent[os.write(self._jobs.fileno(), unsent) :]
            except BrokenPipeError:
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._process.kill()
                    return
                time.sleep(0.01)

    def answers(self) -> list[dict[str, Any]]:
        """The answers since the last call. A zygote that writes anything but records is killed."""
        output = b""
        with suppress(BlockingIOError):
            output = os.read(self.output.fileno(), _LONGEST)  # once: a zygote may write without end
        *lines, self._unread = (self._unread + output).split(b"\n")
        records = [_record(line) for line in lines]
        if len(self._unread) >= _LONGEST or None in records:
            self._process.kill()
        return [record for record in records if record is not None]

    def kill(self) -> None:
        """Kill the zygote, and with it its children."""
        self._process.kill()
        self._process.wait()
        self._jobs.close()
        self.output.close()


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def main(parent: int, packages: Sequence[str]) -> None:
    """Run as a zygote: import, then fork a child for each job, one after the other, until standard input ends."""
    linux.die_with_parent(parent)
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the packages belongs in the log

    def answer(**record: Any) -> None:
        out.write(json.dumps(record) + "\n")

    gc.disable()  # it would look at what the imports allocate again and again: a fifth of their time
    with ExitStack() as until_imported:
        for package in packages:
            answer(importing=package)
            answer(imported=package, found=_import(package))
            if package == "torch" and package in sys.modules:
                until_imported.enter_context(gpus.answered(sys.modules[package]))
    gc.enable()
    # Frozen objects are never visited by the garbage collector, so their memory stays shared with the children.
    gc.collect()
    gc.freeze()
    answer(ready=True, cuda=_cuda())
    for line in sys.stdin:
        answer(ended=_run(Job(**json.loads(line)), out.fileno()))


def _import(package: str) -> str:
    """Import a package and return its version, or the error."""
    try:
        module = importlib.import_module(package)
        for name in PRELOAD.get(package, ()):
            importlib.import_module(name)
        if package == "transformers":
            _build_table()
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        return f"{type(error).__name__}: {error}"
    return str(getattr(module, "__version__", "unknown"))


def _build_table() -> None:
    """Build what Transformers 5 builds in each process that saves or loads a model: 0.1 s, a fifth of a short run."""
    with suppress(Exception):  # other releases have none; what is broken shows where a probe needs it
        mapping = importlib.import_module("transformers.conversion_mapping")
        mapping.get_checkpoint_conversion_mapping("qwen2")


def _cuda() -> str | None:
    """What shows that an import has started CUDA, which does not survive a fork, or None."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "torch has initialized CUDA"
    return gpus.started()


def _run(job: Job, answers: int) -> int:
    """Fork a child that runs the job, wait for it and return its exit status (negative for a signal)."""
    zygote = os.getpid()
    with warnings.catch_warnings():
        # Python warns that threads do not survive a fork. These are idle helper threads of imported packages.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(answers)
        child.become(job, zygote)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
