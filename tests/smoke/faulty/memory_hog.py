"""What if it takes more and more memory?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not",
    bounds=(Bound("answer", "it was always 42", equals=42, headline=True),),
    links=(),
    memory_mib=200,
)


def run(_: Context) -> Iterator[Reading]:
    kept = []
    while True:
        kept.append(b"x" * 2**24)
        time.sleep(0.01)
    yield Reading("answer", 42)
