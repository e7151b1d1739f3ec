"""One step of training on what vLLM sampled, recorded, and the same log-probabilities from the policy itself."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from smoke.kit import adapter, colocate
from smoke.kit.policy import next_token_logprobs

# Rounding may move a token by this much, in nats, over the edge of what top_k, top_p and min_p leave.
MARGIN = 0.3


@dataclass
class SampledStep:
    """One step of training: the settings requested of vLLM, its answers, and what the trainer computed from them."""

    requested: dict[str, float]
    answers: list[colocate.Answer] = field(default_factory=list)
    # By the tokens of a sequence, what the loss was given for it.
    used: dict[tuple[int, ...], dict[str, Any]] = field(default_factory=dict)
    logged: float | None = None

    @property
    def truncates(self) -> bool:
        """Whether some tokens are never to be sampled."""
        return bool(self.requested["top_k"] > 0 or 0 < self.requested["top_p"] < 1 or self.requested["min_p"])


def take_step(trainer: Any) -> SampledStep:
    """Train for one step, and record the input and output of vLLM and the input of the loss."""
    step = SampledStep(
        {name: getattr(trainer.args, name, None) or 0 for name in ("temperature", "top_k", "top_p", "min_p")}
    )
    engine = adapter.sampler(trainer)
    generate, compute_loss = engine.generate, trainer.compute_loss

    def note_answers(*arguments: Any, **keywords: Any) -> Any:
        outputs = generate(*arguments, **keywords)
        step.answers += colocate.answers(outputs)
        return outputs

    def note_uses(model: Any, inputs: Any, *arguments: Any, **keywords: Any) -> Any:
        step.used.update(_rows(inputs))
        return compute_loss(model, inputs, *arguments, **keywords)

    # On the objects themselves, where the trainer looks them up.
    engine.generate, trainer.compute_loss = note_answers, note_uses
    trainer.train()
    engine.generate = generate
    step.logged = trainer.state.log_history[0].get("sampling/importance_sampling_ratio/mean")
    return step


def _rows(inputs: Any) -> dict[tuple[int, ...], dict[str, Any]]:
    """What a batch holds of each sequence, by its tokens. Nothing in TRL 0.14, whose loss samples by itself."""
    if "completion_ids" not in inputs:
        return {}
    rows: dict[tuple[int, ...], dict[str, Any]] = {}
    for i, mask in enumerate(inputs["completion_mask"].bool()):
        prompt = inputs["prompt_ids"][i][inputs["prompt_mask"][i].bool()]
        row = rows.setdefault((*prompt.tolist(), *inputs["completion_ids"][i][mask].tolist()), {})
        for name in ("old_per_token_logps", "importance_sampling_ratio"):
            if (value := inputs.get(name)) is not None:
                # A ratio may be one number for all tokens.
                row[name] = (value[i][mask] if value[i].shape == mask.shape else value[i]).float().cpu()
    return rows


@dataclass
class Scores:
    """Log-probabilities of tokens under the policy: raw, with the temperature (scaled), and with truncation (target).

    Also the mean and variance of the last, and its mean for a sampler without temperature; which tokens are excluded
    by truncation (outside), and how likely those are for a sampler that does not truncate.
    """

    raw: Any
    scaled: Any
    target: Any
    mean: Any
    variance: Any
    mean_ignored: Any
    outside: Any
    outside_ignored: Any


def score(policy: Any, answer: colocate.Answer, requested: dict[str, float]) -> Scores:
    """Score an answer's tokens from all logits of its sequence alone."""
    import torch

    rows = next_token_logprobs(policy, answer.prompt + answer.tokens, len(answer.tokens)).cpu()
    scaled = torch.log_softmax(rows / requested["temperature"], dim=-1)
    kept, loosely_kept = _kept(scaled, requested, 0.0), _kept(scaled, requested, MARGIN)
    target = scaled - torch.where(kept, scaled, -math.inf).logsumexp(dim=-1, keepdim=True)
    chances = torch.where(kept, target, -math.inf).exp()
    mean = (chances * target).sum(dim=-1)
    tokens = torch.tensor(answer.tokens)[:, None]
    return Scores(
        raw=rows.gather(1, tokens)[:, 0],
        scaled=scaled.gather(1, tokens)[:, 0],
        target=target.gather(1, tokens)[:, 0],
        mean=mean,
        variance=(chances * (target - mean[:, None]) ** 2).sum(dim=-1),
        mean_ignored=(rows.exp() * target).sum(dim=-1),
        outside=~loosely_kept.gather(1, tokens)[:, 0],
        outside_ignored=torch.where(loosely_kept, 0.0, scaled.exp()).sum(dim=-1),
    )


def _kept(rows: Any, requested: dict[str, float], margin: float) -> Any:
    """Which tokens top_k, top_p and min_p leave, and those that are less likely than these by up to `margin` nats."""
    import torch

    kept = torch.ones_like(rows, dtype=torch.bool)
    if requested["min_p"]:
        kept &= rows >= rows.max(dim=-1, keepdim=True).values + math.log(requested["min_p"]) - margin
    if requested["top_k"] > 0:
        kept &= rows >= rows.topk(int(requested["top_k"]), dim=-1).values[:, -1:] - margin
    if 0 < requested["top_p"] < 1:
        ordered = rows.sort(dim=-1, descending=True).values
        # As few as reach top_p together: those before which the sum is still below it. Rounding moves that sum, too.
        before = ordered.exp().cumsum(dim=-1) - ordered.exp()
        last = (
            torch.where(before < requested["top_p"] + margin / 10, ordered, math.inf).min(dim=-1, keepdim=True).values
        )
        kept &= rows >= last - margin
    return kept


def distribution(step: SampledStep, scores: list[Scores], longest: int) -> Iterator[tuple[str, float]]:
    """Whether the tokens have the requested distribution: numbers by name. `longest` is how many were asked for."""
    import torch

    outside = torch.cat([score.outside for score in scores])
    yield "tokens_outside", float(outside.sum())
    if step.truncates:
        yield "tokens_outside_ignored", torch.cat([score.outside_ignored for score in scores]).sum().item()

    def total(values: Iterable[Any]) -> float:
        return float(torch.cat(list(values))[~outside].sum())

    mean, deviation = total(s.mean for s in scores), math.sqrt(total(s.variance for s in scores))
    yield "sampling_z", abs(total(s.target for s in scores) - mean) / deviation
    if step.requested["temperature"] != 1:
        yield "sampling_z_ignored", abs(total(s.mean_ignored for s in scores) - mean) / deviation
    # Short ones may well be alike.
    sequences = Counter((*a.prompt, *a.tokens) for a in step.answers if len(a.tokens) == longest)
    yield "completions_repeated", float(sum(sequences.values()) - len(sequences))


def in_half(answers: list[colocate.Answer]) -> int:
    """The token that is in about half of the answers."""
    counts = Counter(token for answer in answers for token in set(answer.tokens))
    return min(counts, key=lambda token: abs(counts[token] - len(answers) / 2))
