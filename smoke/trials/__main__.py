"""`python -m smoke.trials TRIAL.py`: the server of trials in a stack's environment; smoke's supervisor, run repeatedly.

Reads one trial per line of standard input, and answers with the events of smoke's supervisor. What they share is
imported once; every trial is a forked child, whose crash or hang is an answer.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoke import probe
from smoke.run.guard import guarded
from smoke.run.job import Job
from smoke.run.request import Request
from smoke.run.runner import Supervisor
from smoke.run.zygote import PRELOAD


class Trials(Supervisor):
    """A supervisor that runs one probe for every line that it is sent."""

    def serve(self, found: probe.Found, packages: list[str]) -> None:
        """Answer until standard input ends."""
        self._emit("start", probes=[found.name], python=sys.version.split()[0])
        self._shared = self._directory / "shared"
        self._shared.mkdir()
        try:
            while line := _line(0):
                if self._zygote is None:  # at first, and when a trial took it with it
                    self._preload([name for name in PRELOAD if name in packages])
                self._asked = json.loads(line)
                self._emit("end", probe=found.name, **self._run(found))
        finally:
            if self._zygote is not None:
                self._zygote.kill()

    def _job(self, found: probe.Found) -> Job:
        job = super()._job(found)
        (job.work / "trial.json").write_text(json.dumps({**self._asked, "shared": str(self._shared)}))
        return job


def _line(descriptor: int) -> str:
    """One line, unbuffered: the supervisor itself looks at what comes after it."""
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(descriptor, 1)):
        line += chunk
    return line.decode()


def _serve(directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)
    first: dict[str, Any] = json.loads(_line(0))
    found = probe.load(Path(sys.argv[1]))
    found = replace(found, probe=replace(found.probe, timeout_s=first["timeout_s"]))
    request = Request(first["device"], [found], {}, 0, first["memory_mib"])
    Trials(request, directory, 0, events).serve(found, first["packages"])
    return 0


if __name__ == "__main__":
    sys.exit(guarded(_serve))
