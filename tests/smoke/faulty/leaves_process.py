"""What if it leaves a process behind, in a session of its own?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    if os.fork() == 0:
        os.setsid()
        Path(os.environ["HOME"], "left").write_text(str(os.getpid()))
        time.sleep(600)
    yield Reading("answer", 42)
