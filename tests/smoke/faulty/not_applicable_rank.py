"""Does a probe of two ranks that has nothing to ask end as one?"""

from __future__ import annotations

from collections.abc import Iterator

from smoke.probe import Bound, Context, Probe, Reading, Skip

NEEDS_GPUS = Skip("needs 2 GPUs", device="cpu")
PROBE = Probe(
    matters="it does not",
    bounds=(Bound("answer", "it was always 42", equals=42, headline=True),),
    links=(),
    skips=(NEEDS_GPUS,),
    ranks=2,
)


def run(_: Context) -> Iterator[Reading]:
    raise NEEDS_GPUS()
    yield
