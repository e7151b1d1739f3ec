"""What if the zygote dies under a running probe?"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)
    yield Reading("answer", 42)
