"""Does interactions notice that the table of completions shows other rewards than were given?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    import pandas

    def halved(right: Any, table: Any, *args: Any, **kwargs: Any) -> Any:
        return right(table.assign(spelling=table["spelling"] / 2), *args, **kwargs)

    replace(pandas.DataFrame, "to_parquet", halved)


PROBE, run = sabotage("interactions", break_it, rows={"prompts": "text", "architecture": "llama"})
