"""What if one of its ranks raises while the other waits for it?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), ranks=2
)


def run(context: Context) -> Iterator[Reading]:
    if context.rank == 1:
        raise ValueError("no such luck")
    time.sleep(600)
    yield Reading("answer", 42)
