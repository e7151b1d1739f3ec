"""Run trials in a stack's environment: `python -m smoke.trials TRIAL.py`.

Reads one trial per line of standard input, and answers with the events of the suite's supervisor. Packages are imported
once; every trial is a forked child, whose crash or hang is an answer too.
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
    """A supervisor that runs the same probe for every line of standard input."""

    def serve(self, file: probe.ProbeFile, packages: list[str]) -> None:
        """Answer until standard input ends."""
        self._emit("start", probes=[file.name], python=sys.version.split()[0])
        self._shared = self._directory / "shared"
        self._shared.mkdir()
        try:
            while line := _line(0):
                if self._zygote is None:  # at first, and after a trial that killed it
                    self._preload([name for name in PRELOAD if name in packages])
                self._trial = json.loads(line)
                self._emit("end", probe=file.name, **self._run(file))
        finally:
            if self._zygote is not None:
                self._zygote.kill()

    def _job(self, file: probe.ProbeFile) -> Job:
        job = super()._job(file)
        (job.work / "trial.json").write_text(json.dumps({**self._trial, "shared": str(self._shared)}))
        return job


def _line(descriptor: int) -> str:
    """One line, unbuffered: the supervisor watches the input that follows."""
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(descriptor, 1)):
        line += chunk
    return line.decode()


def _serve(directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)
    settings: dict[str, Any] = json.loads(_line(0))
    file = probe.load(Path(sys.argv[1]))
    file = replace(file, probe=replace(file.probe, timeout_s=settings["timeout_s"]))
    request = Request(settings["device"], [file], {}, 0, settings["memory_mib"])
    Trials(request, directory, 0, events).serve(file, settings["packages"])
    return 0


if __name__ == "__main__":
    sys.exit(guarded(_serve))
