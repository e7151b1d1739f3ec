"""The matrix products of a model's forward and their dtypes, observed at the operators.

The dtypes of modules do not tell: autocast casts in between, 4-bit layers multiply with weights that are not stored,
and TRL uses the output layer's weight without calling the layer.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::_scaled_dot_product", "bitsandbytes::gem")

# An operator's name and the dtypes of the matrices that it multiplied.
Product = tuple[str, ...]


def watch(model: Any) -> Counter[Product]:
    """Count the products of `model` from now on, in forwards that build a graph: sampling does not count."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    products: Counter[Product] = Counter()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.name()
            if name.startswith(_PRODUCTS) and not _is_outer(name, args):
                products[(name, *_dtypes(name, args))] += 1
            return func(*args, **(kwargs or {}))

    active: list[Any] = []

    def enter(*_: Any) -> None:
        if torch.is_grad_enabled():
            active.append(Watch())
            active[-1].__enter__()

    def leave(*_: Any) -> None:
        if active:
            active.pop().__exit__(None, None, None)

    model.register_forward_pre_hook(enter)
    model.register_forward_hook(leave, always_call=True)
    return products


def others(products: Counter[Product], dtype: str) -> float:
    """The number of products with a matrix of another dtype than `dtype`; NaN if there was no product."""
    return sum(count for (_, *dtypes), count in products.items() if set(dtypes) != {dtype}) if products else math.nan


def describe(products: Counter[Product]) -> str:
    """All products in words: "72 aten::mm of bfloat16, bfloat16"."""
    return "; ".join(f"{count} {name} of {', '.join(dtypes)}" for (name, *dtypes), count in products.items())


def _is_outer(name: str, args: Any) -> bool:
    """Whether this is an outer product: rotary embeddings multiply positions and frequencies like this, in float32."""
    return name == "aten::bmm" and args[0].shape[-1] == 1


def _dtypes(name: str, args: Any) -> list[str]:
    import torch

    matrices = [arg for arg in args if isinstance(arg, torch.Tensor)]
    # Its other arguments are the packed weight and its scales.
    matrices = matrices[:1] if name.startswith("bitsandbytes::") else matrices
    return [str(matrix.dtype).removeprefix("torch.") for matrix in matrices]
