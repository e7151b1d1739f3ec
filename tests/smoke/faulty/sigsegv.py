"""What if it reads where nothing is?"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    ctypes.string_at(0)
    yield Reading("answer", 42)
