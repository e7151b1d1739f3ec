"""Does checkpoint-roundtrip notice weights that are rounded on their way to the disk?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tensors_different",)


def break_it() -> None:
    from transformers import modeling_utils

    def rounded(right: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        return right({name: value.bfloat16().float() for name, value in tensors.items()}, *args, **kwargs)

    replace(modeling_utils, "safe_save_file", rounded)


PROBE, run = sabotage("checkpoint-roundtrip", break_it)
