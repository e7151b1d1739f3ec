"""What if it exits with a status?"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    sys.exit(7)
    yield Reading("answer", 42)
