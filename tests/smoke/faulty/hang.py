"""What if it never ends?"""

from __future__ import annotations

import time
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not",
    bounds=(Bound("answer", "it was always 42", equals=42, headline=True),),
    links=(),
    timeout_s=0.5,
)


def wait_forever() -> None:
    while True:
        time.sleep(1)


def run(_: Context) -> Iterator[Reading]:
    wait_forever()
    yield Reading("answer", 42)
