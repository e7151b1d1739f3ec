"""Is a question that does not arise here not run, and says why?"""

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
    raise NO_OPTION()
    yield
