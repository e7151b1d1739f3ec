"""What a bisection over packages asks of every set: a probe of the suite, or a command; and its trial."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from builder.base import process
from builder.base.project import sha256
from builder.bisect.between import Between
from builder.bisect.journal import BOUNDS, Trial
from builder.certify import hostenv
from builder.certify.certificate import ProbeResult

CANNOT_SAY = 125  # the exit status of a command that cannot judge this set, as for `git bisect run`
LOG = 20000  # characters of a log that are looked at
EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b:? ?.*$", re.MULTILINE
)


@dataclass(frozen=True)
class Question:
    """A probe of the suite, or a command of the user's own.

    `says` narrows the failure: its log must contain that text. `judge` may see more in a probe's result than whether it
    passed, and `about` says in words what it looks at.
    """

    probe: str = ""
    command: tuple[str, ...] = ()
    says: str = ""
    time_limit_s: float = 600
    judge: Callable[[ProbeResult], Trial] | None = None
    about: str = ""

    @property
    def name(self) -> str:
        return self.probe or " ".join(self.command)

    def key(self, between: Between, suite: str) -> str:
        """The name of this bisection: the two ends, the question, and the suite (its digest) if a probe is asked."""
        parts = [
            between.good.digest, between.bad.digest, self.name, self.says, self.about, suite if self.probe else "",
        ]  # fmt: skip
        return "packages-" + sha256("\0".join(parts).encode()).removeprefix("sha256:")[:12]

    def trial_of_probe(self, result: ProbeResult) -> Trial:
        """The trial that a probe's result amounts to."""
        return self._narrowed((self.judge or of_probe)(result))

    def run_command(self, environment: Path, log: Path) -> Trial:
        """Run the command with the environment's Python first on its PATH."""
        variables = {
            **hostenv.environment(environment),
            "PATH": os.pathsep.join((str(environment / "bin"), os.environ.get("PATH", os.defpath))),
            "VIRTUAL_ENV": str(environment),
        }
        start = time.monotonic()
        with (
            log.open("wb") as output,
            process.running(self.command, env=variables, stdout=output, stderr=subprocess.STDOUT) as child,
        ):
            try:
                status: int | None = child.wait(self.time_limit_s)
            except subprocess.TimeoutExpired:
                status = None
        trial = of_command(status, log.read_text(errors="replace")[-LOG:], self.time_limit_s)
        return self._narrowed(replace(trial, seconds=round(time.monotonic() - start, 3)))

    def _narrowed(self, trial: Trial) -> Trial:
        """Only a log with the text of `says` is the failure that is looked for, however it failed otherwise."""
        if not self.says or trial.outcome != "red":
            return trial
        matches = self.says in f"{trial.reason}\n{trial.log}"
        return replace(trial, fault=self.says if matches else f"without {self.says!r}")


def of_probe(result: ProbeResult) -> Trial:
    """A probe's result as a trial. The fault is the numbers out of bounds, or the exception."""
    log = (result.log_tail or "")[-LOG:]
    reason = result.reason or ""
    if result.outcome == "passed":
        return Trial("green", seconds=result.seconds)
    if result.outcome == "not-run":
        return Trial("unclear", reason=reason, seconds=result.seconds)
    broken = sorted(measurement.name for measurement in result.measurements if not measurement.ok)
    fault: str = result.outcome
    if fault == "failed":
        fault = BOUNDS + ", ".join(broken) if broken else reason.partition(":")[0]
    return Trial("red", fault, reason, result.seconds, log)


def of_command(status: int | None, log: str, time_limit_s: float) -> Trial:
    """A command's exit status as a trial: 0 is green, 125 cannot say. None: it was still running at its time limit."""
    if status == 0:
        return Trial("green")
    if status is None:
        return Trial("red", "hang", f"still running after {time_limit_s:g} s", log=log)
    if status == CANNOT_SAY:
        return Trial("unclear", reason=f"exited with status {CANNOT_SAY}", log=log)
    if status < 0:
        name = signal.Signals(-status).name
        return Trial("red", name, f"killed by {name}", log=log)
    if exceptions := list(EXCEPTION.finditer(log)):
        return Trial("red", exceptions[-1][1], exceptions[-1][0][:300], log=log)
    return Trial("red", f"status {status}", f"exited with status {status}", log=log)
