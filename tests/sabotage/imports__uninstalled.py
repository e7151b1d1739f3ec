"""Does imports notice a distribution of the lock that is not installed?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("distributions_missing",)


def break_it() -> None:
    from importlib.metadata import Distribution

    def discover(right: Any, **kwargs: Any) -> Any:
        return (distribution for distribution in right(**kwargs) if distribution.metadata["Name"] != "trl")

    replace(Distribution, "discover", discover)


PROBE, run = sabotage("imports", break_it)
