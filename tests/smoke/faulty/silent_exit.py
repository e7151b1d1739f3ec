"""What if it exits as if all were well, without a result?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    os._exit(0)
    yield Reading("answer", 42)
