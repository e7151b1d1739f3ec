"""The supervisor: runs the probes one after the other and reports events.

It imports only the standard library and does not trust the stack: answers may be garbage, files may be links or pipes.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import time
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from smoke.probe import ProbeFile
from smoke.run import gpus, linux, outcome
from smoke.run.environment import environment
from smoke.run.guard import Stopped
from smoke.run.job import Job, RankReport
from smoke.run.outcome import Ending
from smoke.run.request import Request
from smoke.run.watch import Watch, follow
from smoke.run.zygote import PRELOAD, Stack, Zygote

ROOT = Path(__file__).resolve().parents[2]

_TICK_S = 0.05
_PRELOAD_LIMIT_S = 600
_LOOK_LIMIT_S = 60
_LOOK_LARGEST = 1 << 20  # bytes of the interpreter's answer
_CALLER_GONE = 1
_REASON = 4000  # characters

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z+.]{0,20}")
# Run by the stack's interpreter: prints its version and its import path, without the current folder.
_LOOK = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path[1:]]))"


class Supervisor:
    """One run of a request. It writes only below `directory`, which the caller removes.

    Raises Stopped as soon as the other end of `stdin` or `stdout` (file descriptors) is closed.
    """

    def __init__(self, request: Request, directory: Path, stdin: int, stdout: int, stack: Stack | None = None) -> None:
        self._request = request
        self._directory = directory
        self._stdin = stdin
        self._stdout = stdout
        self._stack = stack or Stack(sys.executable)
        self._zygote: Zygote | None = None
        home = directory / "home"
        self._environment = environment(request.device, home, ROOT, self._stack.python)
        temporary = Path(self._environment["TMPDIR"])
        temporary.mkdir(parents=True)
        if self._stack.user:
            directory.chmod(0o711)  # the user of the probes must pass through it
        self._stack.hand_over(home, temporary)

    def run(self) -> None:
        """Run all probes and report them."""
        try:
            self._run_all()
        finally:
            if self._zygote is not None:
                self._zygote.kill()

    def _run_all(self) -> None:
        probes = self._request.probes
        python, path = self._look()
        self._emit("start", probes=[file.name for file in probes], python=python)
        obstacles = {file.name: self._obstacle(file, path) for file in probes}
        forked = [file for file in probes if not file.probe.fresh and obstacles[file.name] is None]
        needed = {name for file in forked for name in file.probe.needs}
        self._preload([name for name in PRELOAD if name in needed])
        for file in probes:
            self._emit("begin", probe=file.name)
            obstacle = obstacles[file.name]
            result = self._run(file) if obstacle is None else _end(outcome.NOT_RUN, obstacle)
            self._emit("end", probe=file.name, matters=file.probe.matters, **result)
        self._emit("finish")

    def _look(self) -> tuple[str, list[str]]:
        """The version of the stack's Python and its import path. The answer is checked, not trusted."""
        try:
            interpreter = subprocess.Popen(
                [self._stack.python, "-c", _LOOK], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=self._environment, cwd=self._directory, **self._stack.account,
            )  # fmt: skip
            with interpreter:
                try:
                    answer = _line(interpreter)
                finally:
                    interpreter.kill()
            linux.kill_descendants()  # processes that it left behind would be spared like our own
            version, path = json.loads(answer)
            if not _VERSION.fullmatch(str(version)):
                raise ValueError(f"{str(version)[:40]!a} is no version of Python")
            # The suite itself is on the path, but is not an installed package.
            return str(version), [str(entry) for entry in path if Path(str(entry)).resolve() != ROOT]
        except (OSError, ValueError, TypeError, RuntimeError) as error:  # resolve() raises one for a loop of links
            print(f"smoke: {self._stack.python} does not answer: {error}", file=sys.stderr)
            return "unknown", []

    def _obstacle(self, file: ProbeFile, path: list[str]) -> str | None:
        """Why the probe cannot run here, or None."""
        if missing := [name for name in file.probe.needs if PathFinder.find_spec(name, path) is None]:
            return f"not installed: {', '.join(missing)}"
        if self._request.device == "cuda" and (visible := len(gpus.visible())) < file.probe.gpus:
            return f"needs {file.probe.gpus} GPU(s), found {visible}"
        return None

    def _preload(self, packages: list[str]) -> None:
        """Start the zygote. If it dies or hangs, report the package that it was importing, and do without it."""
        start = time.monotonic()
        zygote = self._new_zygote(packages)
        imported: dict[str, str] = {}
        current, ready, lost = "", False, ""
        while not ready and not lost:
            alive = zygote.status() is None  # checked first: the last answers of a dying zygote still count
            for answer in self._answers(zygote):
                current = str(answer.get("importing", current))
                ready = "ready" in answer
                if answer.get("cuda"):
                    lost = f"an import started CUDA, which does not survive a fork: {str(answer['cuda'])[:200]}"
                if answer.get("imported") in packages:
                    imported[str(answer["imported"])] = str(answer.get("found"))
            if not ready and not alive:
                lost = f"the process importing it: {outcome.ended(zygote.status() or 0)}"
            elif time.monotonic() - start > _PRELOAD_LIMIT_S:
                lost = f"still importing after {_PRELOAD_LIMIT_S} s"
        if ready and not lost:
            self._zygote = zygote
        else:
            imported[current or "zygote"] = lost
            zygote.kill()
            linux.kill_descendants()
        self._emit("ready", seconds=round(time.monotonic() - start, 3), preloaded=imported)

    def _new_zygote(self, packages: list[str]) -> Zygote:
        return Zygote(packages, self._environment, self._directory, self._stack)

    def _run(self, file: ProbeFile) -> dict[str, Any]:
        """Run one probe; returns the fields of its `end` event."""
        start = time.monotonic()
        job = self._job(file)
        spared = linux.descendants(os.getpid())
        shared = self._zygote
        # The child of a zygote without imports is like a new interpreter.
        zygote = self._new_zygote([]) if shared is None or file.probe.fresh else shared
        watch = Watch(zygote.pid, spared, file.probe.timeout_s, self._request.memory_mib or file.probe.memory_mib)
        ending = self._follow(zygote, job, watch)
        if zygote is not shared:
            zygote.kill()
        if shared is not None and shared.status() is not None:
            self._zygote = None  # from now on every probe gets its own process
            shared.kill()
            spared = set()
        linux.kill_descendants(keep=spared)
        report = job.report(0)
        readings = report.readings
        self._measured(file, report)
        word, reason = outcome.judge(ending, job.report(ending.rank or 0), readings, file.probe)
        result = _end(
            word,
            reason[:_REASON] or None,
            measurements=outcome.measurements(readings, file.probe.bounds),
            seconds=round(time.monotonic() - start, 3),
            peak_memory_mib=round(watch.peak_mib, 1),
            log_tail="" if word == outcome.PASSED else job.log_tail(),
        )
        linux.remove(Path(job.directory))
        return result

    def _measured(self, file: ProbeFile, report: RankReport) -> None:
        """Called with what the probe reported, before that is judged."""
        self._emit("measured", probe=file.name, compute_s=round(report.seconds, 3))

    def _job(self, file: ProbeFile) -> Job:
        request = self._request
        job = Job(
            file=str(file.path.resolve()),
            device=request.device,
            seed=request.seed,
            ranks=file.probe.ranks,
            directory=str(self._directory / file.name),
            distributions=request.distributions,
            gpus=gpus.shown(file.probe.gpus, file.probe.ranks) if request.device == "cuda" else None,
        )
        job.work.mkdir(parents=True)
        self._stack.hand_over(Path(job.directory), job.work)
        return job

    def _follow(self, zygote: Zygote, job: Job, watch: Watch) -> Ending:
        zygote.start(job)
        status = follow(watch, lambda: self._answers(zygote), zygote.status)
        if status is None:
            return watch.orphaned(zygote.status() or 0)
        return watch.ended(status, job.failed_rank())

    def _answers(self, zygote: Zygote) -> list[dict[str, Any]]:
        """New answers of the zygote, after one tick at most. Raises Stopped if the caller has disconnected."""
        with selectors.PollSelector() as selector:  # not epoll, which refuses a plain file as standard input
            selector.register(self._stdin, selectors.EVENT_READ)
            if zygote.status() is None:
                selector.register(zygote.output, selectors.EVENT_READ)
            ready = {key.fd for key, _ in selector.select(_TICK_S)}
        if self._stdin in ready and not os.read(self._stdin, 4096):
            raise Stopped(_CALLER_GONE)
        return zygote.answers()

    def _emit(self, event: str, **fields: Any) -> None:
        left = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
        try:
            while left:
                left = left[os.write(self._stdout, left) :]
        except BrokenPipeError as error:
            raise Stopped(_CALLER_GONE) from error


def _line(process: subprocess.Popen[bytes]) -> bytes:
    """The first line that a process writes. Raises TimeoutError if that takes too long."""
    assert process.stdout
    output, deadline = b"", time.monotonic() + _LOOK_LIMIT_S
    with selectors.PollSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while b"\n" not in output and len(output) <= _LOOK_LARGEST:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"no answer within {_LOOK_LIMIT_S} s")
            if not (chunk := os.read(process.stdout.fileno(), 1 << 16)):
                break
            output += chunk
    return output.partition(b"\n")[0]


def _end(
    word: str,
    reason: str | None,
    *,
    measurements: list[dict[str, Any]] | None = None,
    seconds: float = 0.0,
    peak_memory_mib: float = 0.0,
    log_tail: str = "",
) -> dict[str, Any]:
    return {
        "outcome": word,
        "reason": reason,
        "measurements": measurements or [],
        "seconds": seconds,
        "peak_memory_mib": peak_memory_mib,
        "log_tail": log_tail,
    }
