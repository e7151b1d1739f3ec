"""Instead of smoke/trajectories/task.py: no training, and seeds that end in every way."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading
from smoke.trajectories.task import SETTINGS

PROBE = Probe(matters="-", bounds=(Bound("seed", "-", equals=1, headline=True),), links=())


def run(context: Context) -> Iterator[Reading]:
    settings = json.loads(os.environ[SETTINGS])
    last = context.seed + settings["width"]
    for seed in range(context.seed, min(last, settings["end"])):
        if seed == 3:
            yield Reading("3", 0, "FloatingPointError: kl is nan at step 2")
        elif seed == 4:
            yield Reading("4", 1, '{"reward": "no list"')
        elif seed == 5:
            os.kill(os.getpid(), signal.SIGSEGV)
        else:
            yield Reading(str(seed), 1, json.dumps({"reward": [seed + step / 4 for step in range(settings["steps"])]}))
