"""Is a probe that backs out for a reason that it never announced a failure?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.probe import Bound, Context, NotApplicable, Probe, Reading

PROBE = Probe(matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=())


def run(_: Context) -> Iterator[Reading]:
    raise NotApplicable("the moon is full")
    yield
