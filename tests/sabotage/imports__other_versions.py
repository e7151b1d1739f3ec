"""Does imports notice versions that are not those of the lock?"""

from __future__ import annotations

from tests.sabotage._break import sabotage

CAUGHT_BY = ("distributions_different", "distributions_exact")


def break_it() -> None:
    from importlib.metadata import Distribution

    replaced = property(lambda _: "0")
    Distribution.version = replaced  # type: ignore[method-assign, assignment]


PROBE, run = sabotage("imports", break_it)
