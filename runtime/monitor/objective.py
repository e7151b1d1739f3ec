"""What the published losses multiply an advantage by: the importance ratio, clipped or weighted by the loss's own rule.

Dropout makes the ratio differ from 1 even before the first update, where the old policy was scored in another pass. So
it is computed from the two log-probabilities, in their own type: a token must lie on the same side of every edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SEQUENCE = "sequence"  # of a completion: one ratio, the geometric mean of those of its tokens
EACH_TOKEN = ("cispo", "vespo")  # losses whose ratio has no gradient: it weights the log-probability of each token
LEAST, MOST = 1e-8, 20.0  # VESPO's limits of a ratio, and of a logarithm of one


@dataclass(frozen=True)
class Objective:
    """A loss's name and constants. `low`, `high`: epsilon, epsilon_high. Pairs are for advantages above and below 0."""

    kind: str = "grpo"
    level: str = "token"
    low: float = 0.2
    high: float = 0.2
    delta: float | None = None
    soft: tuple[float, float] = (1.0, 1.05)
    gamma: tuple[tuple[float, float], tuple[float, float]] = ((2.0, 3.0), (3.0, 2.0))
    off_policy: float | None = None
    corrected: bool = False  # the policy term is multiplied by vLLM's importance ratio


def log_ratio(inputs: Any, logps: Any) -> Any:
    """The logarithm of new policy over old, of each token: 0 where the loss takes the new policy for the old."""
    old, new = inputs.get("old_per_token_logps"), logps.detach()
    return new - (new if old is None else old.detach())


def ratio(objective: Objective, mask: Any, log_ratios: Any) -> Any:
    """The importance ratio: (rows, tokens), or (rows, 1) of sequences."""
    if objective.level != "token":
        log_ratios = log_ratios.masked_fill(~mask, 0.0).sum(-1, keepdim=True)
        log_ratios = log_ratios / mask.sum(-1, keepdim=True).clamp(min=1.0)
    return log_ratios.exp()


def push(objective: Objective, inputs: Any, logps: Any, mask: Any) -> Any:
    """The gradient of the policy term without its sign: (rows, tokens), up to a positive factor per completion."""
    advantages = inputs["advantages"].detach().float()
    advantages = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    log_ratios = log_ratio(inputs, logps)
    weight = inputs.get("importance_sampling_ratio") if objective.corrected else None
    weight = None if weight is None else weight.detach().float()
    if objective.kind == "vespo":
        slope = _gamma(objective, log_ratios, weight, mask, advantages)
        weight = None
    else:
        slope = _slope(objective, ratio(objective, mask, log_ratios), advantages).float()
    pushed = slope * advantages
    if objective.off_policy is not None:
        pushed = pushed * _kept(objective.off_policy, inputs, logps, mask, advantages)
    pushed = (pushed if weight is None else pushed * weight).expand(mask.shape)
    if objective.level == SEQUENCE and objective.kind not in EACH_TOKEN:  # every token moves the ratio of all
        count = mask.sum(-1, keepdim=True).clamp(min=1)
        pushed = (pushed.masked_fill(~mask, 0.0).sum(-1, keepdim=True) / count).expand(mask.shape)
    return pushed


def _slope(objective: Objective, of: Any, advantages: Any) -> Any:
    """How the loss of a token changes with the logarithm of its ratio, per advantage."""
    import torch

    if objective.kind == "cispo":
        return of.clamp(max=objective.high)
    if objective.kind == "sapo":
        above, below = (torch.full_like(of, temperature) for temperature in objective.soft)
        temperatures = torch.where(advantages > 0, above, below)
        gate = torch.sigmoid(temperatures * (of - 1))
        return 4 * gate * (1 - gate) * of
    capped = of if objective.delta is None else of.clamp(max=objective.delta)
    clipped = of.clamp(1 - objective.low, 1 + objective.high)
    # The loss takes the lesser of the two products; where they are equal, half of the gradient goes through each.
    first, second = capped * advantages, clipped * advantages
    through = torch.where(first < second, 1.0, torch.where(first > second, 0.0, 0.5))
    return of * (through * (capped == of) + (1 - through) * (clipped == of))


def _gamma(objective: Objective, log_ratios: Any, weight: Any, mask: Any, advantages: Any) -> Any:
    """VESPO's weight of a completion."""
    import math

    import torch

    total = log_ratios.float().clamp(-MOST, MOST).masked_fill(~mask, 0.0).sum(-1, keepdim=True)
    if weight is not None:
        total = total + weight.log().clamp(math.log(LEAST), MOST).sum(-1, keepdim=True)
    total = total.clamp(math.log(LEAST), MOST)
    (power, rate), (other_power, other_rate) = objective.gamma
    powers, rates = (
        torch.where(advantages >= 0, above, below) for above, below in ((power, other_power), (rate, other_rate))
    )
    return torch.exp(rates + powers * total - rates * total.exp()).nan_to_num(0.0, 0.0, 0.0)


def _kept(threshold: float, inputs: Any, logps: Any, mask: Any, advantages: Any) -> Any:
    """1 for completions that count: those with an advantage >= 0, and those that the policy has not moved away from."""
    old = inputs.get("sampling_per_token_logps")
    old = inputs.get("old_per_token_logps") if old is None else old
    if old is None:
        return 1.0
    apart = (old.detach() - logps.detach()).nan_to_num(0.0).masked_fill(~mask, 0.0)
    distance = apart.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1.0)
    return ((advantages >= 0) | (distance <= threshold)).float()
