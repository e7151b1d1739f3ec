"""What if what it measures is infinite?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "more is better", at_least=1, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    yield Reading("answer", math.inf)
