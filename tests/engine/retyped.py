"""Compares a model whose parameters are converted where they are used with one that was loaded in the type.

Prints the largest distance of the logits as JSON, for each type, and what autocast makes of the model.
"""

from __future__ import annotations

import copy
import json

import torch

from runtime.monitor import rounding
from smoke.kit import tiny


def main() -> None:
    half = tiny.make_model(1, num_hidden_layers=4, initializer_range=0.3).to(torch.bfloat16).eval()
    whole = copy.deepcopy(half).float()
    ids = torch.randint(4, 120, (2, 9))
    distances = {}
    with torch.no_grad():
        exact = whole(ids).logits
        for loaded, other in ((half, whole), (whole, half)):
            expected = other(ids).logits
            with rounding._as_if_loaded_in(expected.dtype), torch.autocast("cpu", dtype=torch.bfloat16):
                logits = loaded(ids).logits
            assert logits.dtype == expected.dtype
            distances[str(expected.dtype)] = (logits - expected).abs().max().item()
        with torch.autocast("cpu", dtype=torch.bfloat16):  # it works again afterwards
            distances["autocast"] = (whole(ids).logits.float() - exact).abs().max().item()
    print(json.dumps(distances))


if __name__ == "__main__":
    main()
