"""Does gemm-sweep notice products that leave out the last terms of their sums?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("error_bfloat16", "error_float16", "error_float32")


def break_it() -> None:
    import torch

    def linear(right: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        return right(x[..., :-32], weight[:, :-32], bias)

    replace(torch.nn.functional, "linear", linear)


PROBE, run = sabotage("gemm-sweep", break_it)
