"""Train the golden trajectories: read a request from standard input, write events to standard output.

    python -I -S smoke/trajectories/__main__.py --python STACK/bin/python < request

`--python` and `--user` are those of the suite's own runner. The request is one line of JSON: `device`, `first` (the
first seed), `seeds` (how many), `steps`, `threads` (of each seed's process) and `memory_mib`. As many seeds as there
are cores for train side by side, each in a forked process. There is one event `seed` for each, with the numbers of
every step, or with `failure`.

Exit status: 0 when every seed was reported, 3 for a bad request, 1 when the caller disconnected.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

if not __package__:  # started as a file: an isolated interpreter finds modules in the standard library only
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from smoke import probe
from smoke.run import linux
from smoke.run.guard import guarded
from smoke.run.job import RankReport
from smoke.run.request import BadRequestError, Request, read_line
from smoke.run.runner import Supervisor
from smoke.run.zygote import PRELOAD, Stack, account
from smoke.trajectories.task import SETTINGS

BAD_REQUEST = 3
TASK = Path(__file__).with_name("task.py")
_MOST = 8  # seeds side by side
_REASON = 1000  # characters
_START_S, _STEP_S = 120, 2.0  # the longest a part may take, by its steps: forty times as long as it should
_DEFAULTS = {"device": "cpu", "first": 1, "seeds": 30, "steps": 200, "threads": 1, "memory_mib": None}
_LARGEST = {"first": 2**31, "seeds": 10_000, "steps": 100_000, "threads": 1024, "memory_mib": 2**40}


class Trajectories(Supervisor):
    """A supervisor that runs the same task for one part of the seeds after the other."""

    def serve(self, file: probe.ProbeFile, settings: dict[str, Any]) -> None:
        """Train all seeds and report them."""
        cores = max(1, len(os.sched_getaffinity(0)) // settings["threads"])
        width = 1 if settings["device"] == "cuda" else min(_MOST, cores)
        end = settings["first"] + settings["seeds"]
        self._environment[SETTINGS] = json.dumps({**settings, "width": width, "end": end})
        python, path = self._look()
        self._emit("start", python=python, width=width)
        obstacle = self._obstacle(file, path)
        self._readings: Mapping[str, probe.Reading] = {}
        try:
            for first in range(settings["first"], end, width):
                seeds = range(first, min(first + width, end))
                if obstacle is not None:
                    self._report(seeds, obstacle)
                    continue
                if self._zygote is None:  # at first, and after a part that killed it
                    self._preload([name for name in PRELOAD if name in file.probe.needs])
                self._part(file, seeds, settings["steps"])
            self._emit("finish")
        finally:
            if self._zygote is not None:
                self._zygote.kill()

    def _part(self, file: probe.ProbeFile, seeds: range, steps: int) -> None:
        bounds = tuple(probe.Bound(str(seed), "trained to the end", equals=1) for seed in seeds)
        limit = _START_S + _STEP_S * steps
        self._request = replace(self._request, seed=seeds.start)
        result = self._run(replace(file, probe=replace(file.probe, bounds=bounds, timeout_s=limit)))
        self._report(seeds, result["reason"] or result["outcome"])

    def _measured(self, file: probe.ProbeFile, report: RankReport) -> None:  # noqa: ARG002
        self._readings = report.readings

    def _report(self, seeds: range, reason: str) -> None:
        """One event for each seed; `reason` is for those that left no result."""
        for seed in seeds:
            reading = self._readings.get(str(seed), probe.Reading("", 0, reason))
            numbers = _numbers(reading.detail) if reading.value == 1 else None
            if numbers is not None:
                self._emit("seed", seed=seed, numbers=numbers)
            else:
                self._emit("seed", seed=seed, failure=(reading.detail or reason)[:_REASON])


def _numbers(text: str) -> dict[str, list[float]] | None:
    """The numbers that the stack reported, if they are numbers."""
    try:
        data = json.loads(text)
        curves = {str(name): [float(value) for value in curve] for name, curve in data.items()}
        json.dumps(curves, allow_nan=False)
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        return None
    return curves


def parse(line: str) -> dict[str, Any]:
    """The settings of a request. Raises BadRequestError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"the request is not JSON: {error}") from error
    if not isinstance(data, dict) or (unknown := sorted(data.keys() - _DEFAULTS.keys())):
        wrong = f"unknown keys: {', '.join(unknown)}" if isinstance(data, dict) else "no JSON object"
        raise BadRequestError(f"the request has {wrong}; known: {', '.join(_DEFAULTS)}")
    settings = {**_DEFAULTS, **data}
    if settings["device"] not in ("cpu", "cuda"):
        raise BadRequestError('the request\'s device must be "cpu" or "cuda"')
    for name, largest in _LARGEST.items():
        value = settings[name]
        if not (type(value) is int and 1 <= value <= largest) and not (name == "memory_mib" and value is None):
            raise BadRequestError(f"the request's {name} must be a whole number from 1 to {largest}")
    return settings


def main() -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m smoke.trajectories", description=__doc__)
    parser.add_argument("--task", type=Path, default=TASK, metavar="FILE", help="another task")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter of the stack")
    parser.add_argument("--user", type=account, metavar="UID:GID", help="train as this user; needs root")
    options = parser.parse_args()
    linux.hide()  # the stack may run as the same user
    return guarded(lambda directory: _serve(options.task, Stack(options.python, options.user), directory))


def _serve(task: Path, stack: Stack, directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)  # standard output is for events only
    try:
        settings = parse(read_line(0))
        file = probe.load(task)
    except (BadRequestError, probe.BadProbeError) as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    request = Request(settings["device"], [file], {}, 0, settings["memory_mib"])
    Trajectories(request, directory, 0, events, stack).serve(file, settings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
