"""Does a probe of two ranks that has nothing to ask end as one?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.probe import Bound, Context, NotApplicable, Probe, Reading

PROBE = Probe(
    matters="it does not", bounds=(Bound("answer", "it was always 42", equals=42, headline=True),), links=(), ranks=2
)


def run(_: Context) -> Iterator[Reading]:
    raise NotApplicable("needs 2 GPUs")
    yield
