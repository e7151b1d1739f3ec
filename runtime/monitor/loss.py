"""What one micro-batch of the loss shows: log-probabilities, their ratio, KL and entropy, and their gradient.

The gradient of the loss with respect to the log-probability of each token is known without the library: it is a
positive multiple of -slope * advantage + beta * (1 - exp(reference - policy)) for every token of a completion. The
slope is what the loss (GRPO, BNPO, Dr. GRPO, DAPO, CISPO, SAPO, GSPO) makes of the importance ratio: `objective`. It
is judged before the first update after a generation, where few tokens are clipped.
All numbers stay on their device as tensors of one element: `Pending` fetches them together at the end of a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from . import objective
from .objective import Objective

SMALL = 1e-3  # an advantage below this gives no direction that float32 could be judged by


@dataclass
class Pending:
    """Numbers of a step that are still tensors: `largest` of a column over micro-batches, or their `total`."""

    largest: dict[str, list[Any]] = field(default_factory=dict)
    total: dict[str, list[Any]] = field(default_factory=dict)

    def take(self) -> dict[str, float]:
        """Fetch all numbers, with one transfer from each device."""
        tables = [(max, self.largest), (sum, self.total)]
        flat = [value.detach() for _, table in tables for values in table.values() for value in values]
        numbers = iter(fetched(flat))
        row = {
            column: how([next(numbers) for _ in values])  # type: ignore[operator]
            for how, table in tables
            for column, values in table.items()
        }
        self.largest, self.total = {}, {}
        return row

    def keep(self, column: str, value: Any) -> None:
        """Keep a value of which the largest counts."""
        self.largest.setdefault(column, []).append(value)

    def add(self, column: str, value: Any) -> None:
        """Keep a value of which the sum counts."""
        self.total.setdefault(column, []).append(value)


def fetched(values: list[Any]) -> list[float]:
    """The numbers in tensors of one element. A model may be spread over several GPUs, which cannot be stacked."""
    import torch

    numbers = [0.0] * len(values)
    for device in dict.fromkeys(value.device for value in values):
        there = [place for place, value in enumerate(values) if value.device == device]
        column = torch.stack([values[place].float().reshape(()) for place in there]).tolist()
        for place, number in zip(there, column):
            numbers[place] = number
    return numbers


@dataclass(frozen=True)
class Terms:
    """What the loss of a run is made of. `fresh`: no update since the completions were generated."""

    beta: float
    biased_kl: bool  # use_bias_correction_kl: the KL term is weighted by the ratio
    some_tokens: bool  # top_entropy_quantile below 1: only some tokens have a gradient
    objective: Objective  # of the policy term
    exact: bool  # the direction is known: policy and KL term have the same tokens, and a factor that is known
    fresh: bool
    first: bool  # no update since the start of the run
    limit: float = 2.0  # vllm_importance_sampling_cap


def mask_of(inputs: Any) -> Any:
    """Which tokens count: (rows, tokens), bool."""
    mask = inputs["completion_mask"]
    return (mask * inputs["tool_mask"] if inputs.get("tool_mask") is not None else mask).bool()


def observe(pending: Pending, inputs: Any, logps: Any, entropies: Any, terms: Terms) -> None:
    """Numbers of the log-probabilities of a micro-batch: (rows, tokens), in nats."""
    mask = mask_of(inputs)
    new = logps.detach().float()
    pending.add("tokens_in_loss", mask.sum())
    pending.add("not_finite", (~new.isfinite() & mask).sum())
    old = inputs.get("old_per_token_logps")
    observe_reference(pending, inputs, new, terms)
    if old is not None:
        log_ratio = new - old.float()
        pending.keep("log_ratio", mean(log_ratio.abs(), mask))
        if terms.fresh:
            pending.keep("ratio_error", mean(log_ratio.abs(), mask))
    if not terms.fresh:
        return
    if (apart := from_sampler(inputs, new, terms.limit)) is not None:
        pending.keep("sampler_diff", mean(apart.abs(), mask & ~apart.isnan()))
    if entropies is not None:
        # A token drawn from p has on average the surprisal that is p's entropy; the difference sums like a martingale.
        excess = (-new - entropies.detach().float()).masked_fill(~mask, 0.0)
        pending.add("excess", excess.sum())
        pending.add("excess_squared", excess.square().sum())
        pending.add("excess_tokens", mask.sum())


def has_sampler(inputs: Any) -> bool:
    """Whether the loss is given what vLLM said of its tokens."""
    return any(inputs.get(name) is not None for name in ("sampling_per_token_logps", "importance_sampling_ratio"))


def from_sampler(inputs: Any, new: Any, limit: float) -> Any:
    """How far vLLM's log-probabilities are from `new`, per token; NaN where unknown. None if nothing is known.

    `limit`: of the ratio between the trainer's and vLLM's probabilities.
    """
    sampled, ratio = inputs.get("sampling_per_token_logps"), inputs.get("importance_sampling_ratio")
    if sampled is None and ratio is not None:  # TRL 0.23 to 0.26 hand on the ratio alone, with an upper limit
        old = inputs.get("old_per_token_logps")
        # 0 stands for a ratio beyond the limit, and a ratio of whole sequences says less.
        known = ratio.float().masked_fill(ratio == 0, limit).log()
        sampled = (new if old is None else old.float()) - known if ratio.shape == new.shape else None
    return sampled.float() - new if sampled is not None and sampled.shape == new.shape else None


def observe_reference(pending: Pending, inputs: Any, new: Any, terms: Terms) -> None:
    """How far the reference is from the policy's log-probabilities `new`, if the loss has been given it."""
    reference = inputs.get("ref_per_token_logps")
    if reference is not None:
        distance = mean((reference.float() - new).abs(), mask_of(inputs))
        pending.keep("kl_distance", distance)
        if terms.first:
            pending.keep("kl_start", distance)


def mean(values: Any, mask: Any) -> Any:
    """The mean over the tokens that count."""
    return values.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def surprisals(inputs: Any, logps: Any) -> Any:
    """How unlikely each completion is under the policy, in nats. Shape (rows,)."""
    return -logps.detach().float().masked_fill(~mask_of(inputs), 0.0).sum(-1)


def direction(inputs: Any, logps: Any, terms: Terms) -> Any:
    """The negative push on each token that the published loss gives, up to a positive factor per completion."""
    import torch

    mask = mask_of(inputs)
    push = -objective.push(terms.objective, inputs, logps, mask)
    reference = inputs.get("ref_per_token_logps")
    if terms.beta and reference is not None:
        log_ratio = reference.detach().float() - logps.detach().float()
        pull = 1 - torch.exp(log_ratio)
        if terms.biased_kl:
            pull = pull + torch.exp(log_ratio) - log_ratio - 1
            pull = pull * objective.log_ratio(inputs, logps).float().exp()
        push = push + terms.beta * pull
    return push.masked_fill(~mask, 0.0)


def on_gradient(pending: Pending, inputs: Any, logps: Any, gradient: Any, terms: Terms) -> None:
    """Numbers of the gradient of the loss with respect to the log-probabilities, against `direction`."""
    got, mask = gradient.detach().float(), mask_of(inputs)
    pending.add("not_finite", (~got.isfinite()).sum())
    if not terms.fresh or not terms.exact:
        return
    push = direction(inputs, logps, terms)
    size = inputs["advantages"].detach().float().abs()
    size = size if size.dim() == 1 else size.amax(-1)
    judged = (size > SMALL) & mask.any(-1) & (push.abs().amax(-1) > SMALL)
    silent = got.abs().amax(-1) == 0
    if terms.some_tokens:  # top_entropy_quantile may leave a completion without any
        push = push.masked_fill(got == 0, 0.0)
    else:
        pending.add("gradient_lost", (judged & silent).sum())
    # Scaled first: the squares of small gradients would vanish in float32.
    got = got / got.abs().amax(-1, keepdim=True).clamp(min=1e-38)
    cosine = (got * push).sum(-1) / (got.norm(dim=-1) * push.norm(dim=-1)).clamp(min=1e-38)
    pending.keep("gradient_angle", (1 - cosine).masked_fill(~judged | silent, 0.0).amax())
