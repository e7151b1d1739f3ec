"""What if somebody kills it, who is not the OOM killer?"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield Reading("answer", 42)
