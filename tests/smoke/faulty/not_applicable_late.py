"""Is a probe that measures and then backs out a failure?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading, Skip

NO_OPTION = Skip("this TRL has no such option")
PROBE = Probe(
    matters="it does not",
    bounds=(Bound("answer", "it was always 42", equals=42, headline=True),),
    links=(),
    skips=(NO_OPTION,),
)


def run(_: Context) -> Iterator[Reading]:
    yield Reading("answer", 41)
    raise NO_OPTION()
