"""What if it writes to what was standard output?"""

from __future__ import annotations

import os
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    print('{"event": "finish"}')
    os.write(1, b'{"event": "finish"}\n')
    yield Reading("answer", 42)
