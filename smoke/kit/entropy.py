"""What depends on the entropy of tokens: which of them count, and how much a bonus for entropy weighs.

The top tokens by entropy are those of arXiv 2506.01939, the coefficient that follows a target is that of Skywork-OR1
(arXiv 2505.22312).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from smoke.kit import factors
from smoke.kit.factors import Row
from smoke.kit.samples import Scored


class Bonus:
    """The coefficient of the bonus, step by step of a whole run.

    An adaptive one grows after a step whose tokens had no more than the target of entropy, and shrinks after another.
    It has an effect only right after a step of the first kind.
    """

    def __init__(self, row: Row) -> None:
        self._adaptive = row["entropy"] == "adaptive bonus"
        self.coefficient = factors.ENTROPY_BONUS if self._adaptive or row["entropy"] == "bonus" else 0.0
        # What the entropy is multiplied by in the loss, after every number of steps.
        self.effects = [0.0 if self._adaptive else self.coefficient]
        self.near = math.inf  # how near the target an entropy was: rounding may decide on which side it is

    def note(self, parts: Sequence[tuple[Any, float]]) -> None:
        """Take note of a step: of each micro-batch the mean entropy, in nats, and the number of tokens that counted."""
        if not self._adaptive:
            self.effects.append(self.coefficient)
            return
        entropy = sum(mean.item() * count for mean, count in parts) / max(sum(count for _, count in parts), 1)
        least, most = factors.ADAPTIVE["entropy_coef_min"], factors.ADAPTIVE["entropy_coef_max"]
        target, change = factors.ADAPTIVE["entropy_target"], factors.ADAPTIVE["entropy_coef_delta"]
        self.near = min(self.near, abs(entropy - target))
        self.coefficient = min(max(self.coefficient + (change if entropy <= target else -change), least), most)
        self.effects.append(self.coefficient if entropy <= target else 0.0)


def mean_entropy(scored: Sequence[Scored | None], kept: Sequence[Any]) -> tuple[Any, float]:
    """The mean entropy of the tokens of a micro-batch of one rank that count, and how many these are."""
    import torch

    pairs = [(s.entropy, torch.ones_like(s.entropy) * k) for s, k in zip(scored, kept, strict=True) if s is not None]
    if not pairs:
        return torch.zeros((), dtype=torch.float64), 0.0
    entropies, weights = (torch.cat(column) for column in zip(*pairs, strict=True))
    count = weights.sum().item()
    return (entropies * weights).sum() / max(count, 1.0), count


def top_threshold(entropies: Any) -> tuple[float, float]:
    """The entropy, in nats, from which a token of a micro-batch counts, and how near others are to it.

    The threshold may be the entropy of a token, which then counts whatever rounding does. Where several tokens have
    that entropy, as the first ones of a prompt's completions do, ranks that pad differently round them differently: the
    distance is 0.
    """
    import torch

    threshold = torch.quantile(entropies, 1 - factors.TOP)
    distances = sorted((entropies - threshold).abs().tolist())
    if distances[0] == 0:
        distances = distances[1:]
    return threshold.item(), min(distances, default=math.inf)
