"""What if what it measures is not a number?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "anything goes", headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    yield Reading("answer", math.nan)
