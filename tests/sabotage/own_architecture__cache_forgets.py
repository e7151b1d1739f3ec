"""Does own-architecture notice a twin that generates with a cache that forgets the prompt?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage
from tests.sabotage.own_architecture__padding_attended import GEMMA

CAUGHT_BY = ("generation_error",)


def break_it() -> None:
    from transformers.cache_utils import DynamicLayer

    def forgetful(right: Any, layer: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        keys, values = right(layer, keys, values, *args, **kwargs)
        keys[..., :4, :] = 0
        return keys, values

    replace(DynamicLayer, "update", forgetful)


PROBE, run = sabotage("own-architecture", break_it, own={"row": {}, "model": GEMMA, "ranks": 1})
