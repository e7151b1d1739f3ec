"""Instead of smoke/trials/trial.py: a trial whose settings say how it ends. It logs the settings beside this file."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="-", bounds=(Bound("trained", "-", equals=1, headline=True),), links=())


def run(context: Context) -> Iterator[Reading]:  # noqa: ARG001
    config = json.loads(Path("trial.json").read_text())["config"]
    with Path(__file__).with_name("trials.log").open("a") as log:
        print(sorted(config), file=log)
    if {"a01", "a17"} <= config.keys():
        raise ValueError(f"a01 is {config['a01']}, which a17 does not allow")
    if "crash" in config:
        os.kill(os.getpid(), signal.SIGSEGV)
    if "hang" in config:
        time.sleep(600)
    if "nan" in config:
        raise FloatingPointError("loss is nan at step 1")
    if "leave" in config:
        print("error: no such thing")
        raise SystemExit(2)
    if "slow" in config:
        time.sleep(0.2)
    yield Reading("trained", 1)
