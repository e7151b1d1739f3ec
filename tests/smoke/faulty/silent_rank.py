"""What if one of its ranks exits without a result?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), ranks=2
)


def run(context: Context) -> Iterator[Reading]:
    if context.rank == 1:
        os._exit(0)
    time.sleep(600)
    yield Reading("answer", 42)
