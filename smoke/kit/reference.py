"""A reference of GRPO's loss in plain PyTorch, written from the papers.

DeepSeekMath (arXiv 2402.03300) for the group's advantages, the ratio, the clipping and the KL divergence; Dr. GRPO
(arXiv 2503.20783) for the constant normaliser and the rewards that are not scaled; DAPO (arXiv 2503.14476) for the
two clipping bounds, the mean over tokens and the truncated completions that do not count; DeepSeek-V3.2 (arXiv
2512.02556) for the KL divergence weighted by the ratio.

Where the papers leave a choice, it follows TRL's documentation: the sample standard deviation, plus 1e-4, and logits
divided by the temperature for the policy that was sampled from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sample:
    """A completion, with its end-of-sequence token if it has one, and its reward. A group shares a prompt."""

    prompt: list[int]
    completion: list[int]
    reward: float
    group: int
    truncated: bool


@dataclass(frozen=True)
class Objective:
    """The options that the loss depends on.

    `average` is how the losses of tokens are averaged: "sequence" per sequence, then over sequences (GRPO); "token"
    over all tokens (DAPO); "length" over the largest possible number of tokens, `length` per sequence (Dr. GRPO).
    """

    average: str
    length: int
    epsilon: float = 0.2
    epsilon_high: float = 0.2
    beta: float = 0.0
    temperature: float = 1.0
    scale: bool = True
    mask_truncated: bool = False
    weight_kl: bool = False


def log_probs(model: Any, parameters: Mapping[str, Any], samples: Sequence[Sample], temperature: float) -> list[Any]:
    """The log-probability of every token of every completion under `model` with these parameters, on the CPU.

    One tensor per sample, from all logits of one batch. It is padded on the right, which in a causal model has no
    effect on the tokens before.
    """
    import torch

    rows = [torch.tensor(sample.prompt + sample.completion) for sample in samples]
    batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    logits = torch.func.functional_call(model, dict(parameters), (batch,), {"use_cache": False}).logits
    scores = torch.log_softmax(logits / temperature, dim=-1)
    return [
        score[len(sample.prompt) - 1 : len(row) - 1].gather(1, row[len(sample.prompt) :, None])[:, 0]
        for score, row, sample in zip(scores, rows, samples, strict=True)
    ]


def advantages(samples: Sequence[Sample], scale: bool) -> list[float]:
    """How much better than its group each completion is, in standard deviations of the group if `scale`."""
    import torch

    groups: dict[int, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample.group, []).append(sample.reward)
    moments = {group: torch.tensor(rewards, dtype=torch.float64) for group, rewards in groups.items()}
    mean = {group: rewards.mean().item() for group, rewards in moments.items()}
    spread = {group: rewards.std().item() + 1e-4 if scale else 1.0 for group, rewards in moments.items()}
    return [(sample.reward - mean[sample.group]) / spread[sample.group] for sample in samples]


def loss(
    samples: Sequence[Sample], objective: Objective, policy: Sequence[Any], old: Sequence[Any], base: Sequence[Any]
) -> Any:
    """The loss of a batch, from log-probabilities under the policy, the sampling policy and the reference model."""
    import torch

    totals, lengths = [], []
    for sample, advantage, now, then, first in zip(
        samples, advantages(samples, objective.scale), policy, old, base, strict=True
    ):
        ratio = torch.exp(now - then)
        clipped = ratio.clamp(1 - objective.epsilon, 1 + objective.epsilon_high)
        kl = (torch.exp(first - now) - (first - now) - 1) * (ratio if objective.weight_kl else 1)
        tokens = -torch.minimum(ratio * advantage, clipped * advantage) + objective.beta * kl
        counts = not (objective.mask_truncated and sample.truncated)
        totals.append(tokens.sum() * counts)
        lengths.append(len(now) * counts)
    if objective.average == "sequence":
        means = [total / max(length, 1) for total, length in zip(totals, lengths, strict=True)]
        return torch.stack(means).mean()
    count = {"token": sum(lengths), "length": len(samples) * objective.length}[objective.average]
    return torch.stack(totals).sum() / count
