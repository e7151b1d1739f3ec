"""A reference of GRPO's loss in plain PyTorch, written from the papers.

DeepSeekMath (arXiv 2402.03300) for the group's advantages, the ratio, the clipping and the KL divergence; Dr. GRPO
(arXiv 2503.20783) for the constant normaliser and the rewards that are not scaled; DAPO (arXiv 2503.14476) for the
two clipping bounds, the mean over tokens and the truncated completions that do not count; DeepSeek-V3.2 (arXiv
2512.02556) for the KL divergence weighted by the ratio, and for completions that the policy has left behind.

The other objectives that TRL offers: one ratio per sequence (GSPO, arXiv 2507.18071), also summed over its tokens
(LUSPO, arXiv 2602.05261); a bound for ratios of worse completions (INTELLECT-2, arXiv 2505.07291); clipped weights
(CISPO, arXiv 2506.13585); a soft gate (SAPO, arXiv 2511.20347); gamma weights of sequences (VESPO, arXiv 2602.10693);
rewards that are normalised one by one (GDPO, arXiv 2601.05242).

Where the papers leave a choice, it follows TRL's documentation: the sample standard deviation, plus 1e-4, and logits
divided by the temperature for the policy that was sampled from.
"""

from __future__ import annotations

import math
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
    over all tokens (DAPO); "length" over the largest possible number of tokens, `length` per sequence (Dr. GRPO);
    "sum" per sequence not at all, then over sequences (LUSPO); "part" over the tokens of each micro-batch (BNPO).

    `clipping` is what keeps a ratio from growing: "ratio" clips it (PPO, GRPO), "weight" clips it as a constant factor
    of the log-probability (CISPO), "soft" is a sigmoid whose temperatures are `soft`, for better and worse completions
    (SAPO), "gamma" weighs sequences with the exponents and rates of `gamma`, for better and worse ones (VESPO).

    A completion that is worse than its group does not count when a token of it is less likely by more than
    `off_policy` nats, on average, than for the sampler.
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
    clipping: str = "ratio"
    per_sequence: bool = False
    delta: float = math.inf
    soft: tuple[float, float] = (1.0, 1.05)
    gamma: tuple[tuple[float, float], tuple[float, float]] = ((2.0, 3.0), (3.0, 2.0))
    off_policy: float = math.inf


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
    rewards = [[sample.reward] for sample in samples]
    return judge(rewards, [1.0], [sample.group for sample in samples], "group" if scale else "none").advantages


@dataclass(frozen=True)
class Judgement:
    """What rewards say of completions: the weighted sums (NaN where no function gave one), and the advantages."""

    totals: list[float]
    advantages: list[float]
    flat: list[bool]


def judge(
    rewards: Sequence[Sequence[float]],
    weights: Sequence[float],
    groups: Sequence[int],
    scale: str,
    *,
    each: bool = False,
) -> Judgement:
    """The advantages of completions from the rewards of several functions, NaN where one gave none.

    `scale`: divide by the standard deviation of the "group", of the whole "batch", or by "none". With `each`, every
    function's rewards are normalised in their group before they are added, and the sums in the whole batch after it.
    `flat` says whose rewards have no spread.
    """
    import torch

    table = torch.tensor(rewards, dtype=torch.float64)
    factors = torch.tensor(weights, dtype=torch.float64)
    whole = [0] * len(table)
    judged = ~table.isnan().all(dim=1)
    totals = torch.where(judged, (table * factors).nansum(dim=1), math.nan)
    if each:
        columns = [_centred(column, groups) / (_spread(column, groups) + 1e-4) for column in table.T]
        sums = torch.where(judged, (torch.stack(columns, dim=1) * factors).nansum(dim=1), math.nan)
        spread = _spread(sums, whole)
        result = _centred(sums, whole) / (spread + 1e-4)
    else:
        spread = _spread(totals, whole if scale == "batch" else groups)
        result = _centred(totals, groups)
        result = result if scale == "none" else result / (spread + 1e-4)
    # What nobody judged, or nothing can be compared with, teaches nothing.
    return Judgement(totals.tolist(), result.nan_to_num(nan=0.0).tolist(), (spread.abs() < 1e-8).tolist())


def _members(groups: Sequence[int]) -> list[list[int]]:
    return [[i for i, group in enumerate(groups) if group == name] for name in dict.fromkeys(groups)]


def _centred(values: Any, groups: Sequence[int]) -> Any:
    """Every value less the mean of its group; NaN does not count."""
    result = values.clone()
    for members in _members(groups):
        result[members] = values[members] - values[members].nanmean()
    return result


def _spread(values: Any, groups: Sequence[int]) -> Any:
    """The sample standard deviation of every value's group; NaN does not count, and of a single value it is NaN."""
    result = values.clone()
    for members in _members(groups):
        own = values[members]
        known = own[~own.isnan()]
        result[members] = known.std() if len(known) > 1 else math.nan
    return result


def token_losses(
    objective: Objective, advantage: float, now: Any, then: Any, first: Any, kept: Any = 1, importance: Any = 1
) -> Any:
    """The losses of a completion's tokens, from their log-probabilities under the three policies of `loss`.

    Only the tokens that are `kept` count, each as much as its `importance`, except for the KL divergence. The
    importance is what the sampler's chances were wrong by.
    """
    import torch

    ratio = ratios(objective, now, then)
    if objective.clipping == "weight":
        tokens = -ratio.clamp(max=objective.epsilon_high).detach() * advantage * now
    elif objective.clipping == "soft":
        temperature = objective.soft[0] if advantage > 0 else objective.soft[1]
        tokens = -torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature * advantage
    elif objective.clipping == "gamma":
        tokens = -gamma_weight(objective, advantage, now, then, importance) * advantage * now
    else:
        clipped = ratio.clamp(1 - objective.epsilon, 1 + objective.epsilon_high)
        tokens = -torch.minimum(ratio.clamp(max=objective.delta) * advantage, clipped * advantage)
    # VESPO's weight has the importance in it.
    tokens = tokens * kept * (1 if objective.clipping == "gamma" else importance)
    if objective.beta:
        tokens = tokens + objective.beta * divergence(objective, now, then, first)
    return tokens


def ratios(objective: Objective, now: Any, then: Any) -> Any:
    """How much more likely each token is than when it was sampled; with `per_sequence` their geometric mean for all."""
    change = now - then
    return (change.mean().expand_as(change) if objective.per_sequence else change).exp()


def divergence(objective: Objective, now: Any, then: Any, first: Any) -> Any:
    """The estimate of the KL divergence that is never negative, for tokens sampled from the policy."""
    estimate = (first - now).exp() - (first - now) - 1
    return estimate * ratios(objective, now, then) if objective.weight_kl else estimate


def drift(now: Any, sampler: Any) -> float:
    """How much less likely the tokens of a completion have become, in nats a token, than they were for its sampler."""
    mean: float = (sampler - now).detach().mean().item()
    return mean


def gamma_weight(objective: Objective, advantage: float, now: Any, then: Any, importance: Any = 1) -> float:
    """VESPO's weight of a sequence, 1 when its ratio is 1: exp(rate) * ratio ** exponent * exp(-rate * ratio).

    The ratio is that to the sampler. An importance of 0 is taken for 1e-8, as is a smaller ratio.
    """
    import torch

    exponent, rate = objective.gamma[0] if advantage >= 0 else objective.gamma[1]
    change = (now - then).detach().sum().item()
    change += torch.as_tensor(importance, dtype=torch.float64).clamp(min=1e-8).log().sum().item()
    change = max(change, math.log(1e-8))
    return math.exp(rate + exponent * change - rate * math.exp(change))


def loss(
    samples: Sequence[Sample], objective: Objective, policy: Sequence[Any], old: Sequence[Any], base: Sequence[Any]
) -> Any:
    """The loss of a batch, from log-probabilities under the policy, the sampling policy and the reference model."""
    import torch

    totals, lengths = [], []
    for sample, advantage, now, then, first in zip(
        samples, advantages(samples, objective.scale), policy, old, base, strict=True
    ):
        tokens = token_losses(objective, advantage, now, then, first)
        counts = not (objective.mask_truncated and sample.truncated)
        totals.append(tokens.sum() * counts)
        lengths.append(len(now) * counts)
    if objective.average == "sequence":
        means = [total / max(length, 1) for total, length in zip(totals, lengths, strict=True)]
        return torch.stack(means).mean()
    count = {"token": sum(lengths), "length": len(samples) * objective.length}[objective.average]
    return torch.stack(totals).sum() / count
