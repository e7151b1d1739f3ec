"""Does a probe in a process of its own pass?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), fresh=True
)


def run(_: Context) -> Iterator[Reading]:
    yield Reading("answer", 42)
