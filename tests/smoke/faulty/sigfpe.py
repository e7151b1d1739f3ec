"""What if it divides by zero in machine code?"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    os.kill(os.getpid(), signal.SIGFPE)
    yield Reading("answer", 42)
