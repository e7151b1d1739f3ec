"""Which completions reach the loss: each is known by a fingerprint of its tokens and by its advantage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Key = tuple[int, float]  # fingerprint, advantage
PRIME = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, so that powers of it never vanish modulo 2**64


def fingerprints(prompt: Any, completion: Any, pad: int) -> Any:
    """One integer for each row of tokens, the same with more or less padding. Shape (rows,), int64.

    A polynomial in the tokens modulo 2**64. The prompt is padded on the left, so its positions count from its end.
    """
    import torch

    def powers(length: int) -> Any:
        ones = torch.full((length,), PRIME, dtype=torch.int64, device=completion.device)
        return torch.cumprod(ones, dim=0)

    tokens = torch.where(completion == pad, 0, completion + 1)
    before = torch.where(prompt == pad, 0, prompt + 1).flip(-1)
    last = powers(tokens.shape[-1])
    first = powers(before.shape[-1]) * 3
    return (tokens * last).sum(-1) + (before * first).sum(-1)


class Ledger:
    """Counts how often each completion is to be used, and how often it was."""

    def __init__(self) -> None:
        self.due: Counter[Key] = Counter()
        self.known: set[Key] = set()
        self.missing = 0
        self.foreign = 0

    def generated(self, keys: Sequence[Key], uses: int, *, complete: bool) -> None:
        """Completions that were generated, each for so many uses. `complete`: those before must be used up by now."""
        if complete:
            self.missing += sum(count for count in self.due.values() if count > 0)
            self.due.clear()
        for key in keys:
            self.due[key] += uses

    def used(self, keys: Sequence[Key]) -> None:
        """Completions that a loss was computed from."""
        for key in keys:
            if self.due[key] > 0:
                self.due[key] -= 1
            else:
                self.foreign += 1

    def take(self) -> dict[str, float]:
        """The counts since the last call."""
        counts = {"samples_missing": float(self.missing), "samples_foreign": float(self.foreign)}
        self.missing = self.foreign = 0
        return counts
