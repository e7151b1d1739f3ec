"""Does train-cli notice a message that does not say which option nobody knows?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("misspelt_accepted",)


def break_it() -> None:
    from trl import TrlParser

    def set_defaults(right: Any, *args: Any, **config: Any) -> list[str]:
        return ["an option"] if right(*args, **config) else []

    replace(TrlParser, "set_defaults_with_config", set_defaults)


PROBE, run = sabotage("train-cli", break_it)
