"""Does nf4-parity notice an adapter that is scaled by alpha / sqrt(r)?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("gradient_error", "forward_error", "eval_error")


def break_it() -> None:
    from peft import LoraConfig

    def init(right: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        right(config, *args, **{**kwargs, "use_rslora": True})

    replace(LoraConfig, "__init__", init)


PROBE, run = sabotage("nf4-parity", break_it)
