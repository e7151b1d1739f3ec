"""Does train-cli notice an option of the file that does not reach the run?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("options_lost",)


def break_it() -> None:
    from trl import TrlParser

    def parse(right: Any, parser: Any, *args: Any, **kwargs: Any) -> Any:
        parsed = right(parser, *args, **kwargs)
        for part in parsed:
            if hasattr(part, "beta"):
                part.beta = 0.0
        return parsed

    replace(TrlParser, "parse_args_and_config", parse)


PROBE, run = sabotage("train-cli", break_it)
