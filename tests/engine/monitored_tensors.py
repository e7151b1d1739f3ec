"""Prints what the monitor computes of tensors whose answer is known: marks of weights, and vLLM's log-probabilities."""

from __future__ import annotations

import json
import math
from typing import Any

import torch

from runtime.monitor import loss, weights

CHANGES = 2000


def marks() -> dict[str, Any]:
    """How often a change of weights leaves their mark as it was, and what becomes of a mark on its way into a row."""
    torch.manual_seed(1)
    values = torch.randn(1536)
    before, same = int(weights.mark(values)), {"one": 0, "cancelling": 0}
    seen = [before]
    for _ in range(CHANGES):
        first, second = torch.randperm(len(values))[:2].tolist()
        for kind, steps in (("one", {first: 1}), ("cancelling", {first: 1, second: -1})):
            bits = values.view(torch.int32).clone()
            for place, step in steps.items():
                bits[place] += step
            seen.append(int(weights.mark(bits.view(torch.float32))))
            same[kind] += seen[-1] == before
    kept = loss.fetched([torch.tensor(mark) for mark in seen]) == seen
    return {"same": same, "again": int(weights.mark(values.clone())) == before, "kept": kept, "largest": max(seen)}


def distances() -> dict[str, float | None]:
    """The distance from vLLM in the mean over tokens, by what a release hands on. It is 0.3 nats."""
    new = torch.full((2, 4), -1.5)
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0]])
    old, ratio = new + math.log(1.2), torch.full((2, 4), math.exp(0.3))
    handed: dict[str, dict[str, Any]] = {
        "log-probabilities": {"sampling_per_token_logps": new - 0.3},
        "a ratio": {"importance_sampling_ratio": ratio},
        "a ratio to the old policy": {"importance_sampling_ratio": ratio * 1.2, "old_per_token_logps": old},
        "a ratio beyond the limit": {"importance_sampling_ratio": torch.zeros(2, 4)},
        "a ratio of sequences": {"importance_sampling_ratio": ratio[:, :1]},
        "nothing": {},
    }  # fmt: skip
    answers: dict[str, float | None] = {}
    for name, inputs in handed.items():
        apart = loss.from_sampler(inputs, new, limit=2.0)
        answers[name] = None if apart is None else round(float(loss.mean(apart.abs(), mask.bool())), 6)
    return answers


if __name__ == "__main__":
    print(json.dumps(marks()))
    print(json.dumps(distances()))
