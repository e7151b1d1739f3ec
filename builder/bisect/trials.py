"""Trials of settings in an environment: one process imports the packages once, and forks a child for each trial."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from builder.base import errors, process
from builder.bisect.configuration import Configuration
from builder.bisect.journal import Trial
from builder.certify import suite

PROGRAM = Path("smoke/trials/trial.py")  # below the copy of the suite


class Server:
    """The process that forks trials. It starts with the first one."""

    def __init__(
        self, python: Path, device: str, configuration: Configuration, root: Path, scratch: Path,
        time_limit_s: float,
    ) -> None:  # fmt: skip
        """`python` is in an environment's bin/, `root` is the folder of the copied suite.

        `time_limit_s`: the seconds for one trial.
        """
        self.configuration, self.scratch, self._root = configuration, scratch, root
        self._start_request = {
            "device": device, "packages": configuration.packages, "timeout_s": time_limit_s,
            "memory_mib": suite.memory_mib(),
        }  # fmt: skip
        self._python, self._runner = python, suite.on_host(python.parent.parent, root, scratch / "run")
        self._stack = ExitStack()
        self._child: subprocess.Popen[str] | None = None
        self._log = scratch / "trials.log"

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, settings: Mapping[str, Any]) -> Trial:
        """Try these settings. Raises VettedError when the process died."""
        child = self._started()
        assert child.stdin is not None and child.stdout is not None
        try:
            request = {"config": dict(settings), "ours": list(self.configuration.ours)}
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
        except BrokenPipeError:
            pass  # its log says why
        for line in child.stdout:
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "end":
                return of_event(event)
        raise errors.from_tool("running trials", self._log.read_text(errors="replace"))

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None:
            log = self._stack.enter_context(self._log.open("wb"))
            command = [str(self._python), "-m", "smoke.trials", str(self._root / PROGRAM)]
            self._child = self._stack.enter_context(
                process.running(
                    command,
                    env={**self._runner.environment, "PYTHONPATH": str(self._root)},
                    stdin=subprocess.PIPE,
                    stderr=log,
                    cwd=self.scratch,
                )
            )
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps(self._start_request) + "\n")
        return self._child


def of_event(event: Mapping[str, Any]) -> Trial:
    """The event at the end of a trial. The fault is a crash, a hang, `nan`, or an error's kind and words."""
    outcome, reason, log = str(event["outcome"]), str(event["reason"] or ""), str(event["log_tail"] or "")
    seconds = float(event["seconds"])
    if outcome == "passed":
        return Trial("green", seconds=seconds)
    if outcome == "not-run":
        return Trial("unclear", reason=reason, seconds=seconds)
    if outcome == "failed":
        kind, _, words = reason.partition(":")
        if kind == "FloatingPointError":
            return Trial("red", "nan", words.strip(), seconds, log)
        if not words:  # it exited by itself, and its last words are in the log
            reason = next((line for line in reversed(log.splitlines()) if line.strip()), reason)
        # The same error has other numbers with other settings.
        return Trial("red", re.sub(r"[\d.]+", "#", reason.splitlines()[0])[:200], reason, seconds, log)
    faults = {"timeout": "hang", "crashed": f"crash: {reason}"}
    return Trial("red", faults.get(outcome, outcome), reason, seconds, log)
