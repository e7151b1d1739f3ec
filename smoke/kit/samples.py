"""The completions of a run: what was made of their rewards, and what a policy says of their tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from smoke.kit import factors, reference, tiny
from smoke.kit.factors import Row
from smoke.kit.journal import Generation, Tokens

PAD, EOS = tiny.VOCABULARY.index("<pad>"), tiny.VOCABULARY.index("<eos>")


@dataclass(frozen=True)
class Sampled:
    """A completion of the run, and what was made of its rewards."""

    prompt: Tokens
    completion: Tokens
    text: str
    tag: str
    rewards: list[float]
    total: float
    advantage: float
    flat: bool
    logprobs: list[float]

    @property
    def truncated(self) -> bool:
        """Whether it does not end by itself; a padding token counts as an end."""
        return self.completion[-1] not in (EOS, PAD)


@dataclass
class Scored:
    """Of a completion's tokens: log-probabilities now, when sampled and under the reference, and entropies now."""

    now: Any
    then: Any
    first: Any
    entropy: Any


@dataclass
class Part:
    """One micro-batch of one rank: what was trained on, None where all of a completion was masked."""

    batch: int
    samples: list[Sampled | None]


def importance(row: Row, sample: Sampled, then: Any) -> Any:
    """How much a token counts, or a completion, because another engine sampled it with other chances."""
    import torch

    level, _, how = row.get("correction", "off").partition("_")
    if level == "off":
        return 1
    ratio = then - torch.tensor(sample.logprobs, dtype=torch.float64)
    ratio = (ratio if level == "token" else ratio.sum()).exp()
    least, most = limits(row)
    if how == "mask":
        return torch.where((ratio > most) | (ratio < least), 0.0, ratio)
    return ratio.clamp(least, most) if how == "truncate" else ratio


def limits(row: Row) -> tuple[float, float]:
    """The least and the most importance."""
    return factors.LEAST if row.get("constants") == "own" else 0.0, factors.CAP


def distance_to_cap(row: Row, sample: Sampled, then: Any) -> float:
    """How near the importance of a completion or of its tokens is to where it would be masked."""
    if not row.get("correction", "off").endswith("_mask"):
        return math.inf
    free = {**row, "correction": row["correction"].replace("_mask", "_free")}
    ratio = importance(free, sample, then)
    distances: list[float] = [(ratio - limit).abs().min().item() for limit in limits(row) if limit]
    return min(distances)


def of_tokens(score: Any, sample: Sampled) -> tuple[Any, Any]:
    import torch

    start, count = len(sample.prompt), len(sample.completion)
    rows = score[start - 1 : start - 1 + count].log_softmax(dim=-1)
    return rows.gather(1, torch.tensor(sample.completion)[:, None])[:, 0], -(rows.exp() * rows).sum(dim=-1)


def judged(row: Row, generations: list[Generation]) -> list[Sampled]:
    """The completions of one generation of all ranks, with advantages against those of the same prompt."""
    prompts = [prompt for generation in generations for prompt in generation.prompts]
    completions = [completion for generation in generations for completion in generation.completions]
    texts = [text for generation in generations for text in generation.texts]
    tags = [tag for generation in generations for tag in generation.tags]
    elsewhere = [logprobs for g in generations for logprobs in g.logprobs or [[]] * len(g.prompts)]
    rewards_of_each = [[math.nan if r is None else r for r in rewards] for g in generations for rewards in g.rewards]
    weights = [1.0] if row["rewards"] == "one" else list(factors.REWARD_WEIGHTS)
    groups = [list(dict.fromkeys(prompts)).index(prompt) for prompt in prompts]
    judged = reference.judge(
        rewards_of_each, weights, groups, row["scale"], each=row.get("aggregation") == "each first"
    )
    return [
        Sampled(*fields)
        for fields in zip(
            prompts,
            completions,
            texts,
            tags,
            rewards_of_each,
            judged.totals,
            judged.advantages,
            judged.flat,
            elsewhere,
            strict=True,
        )
    ]
