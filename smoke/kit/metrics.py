"""What a run should have logged, from the oracle of it, by TRL's names."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from smoke.kit import extremes, factors, reference
from smoke.kit.oracle import EDGE, Expected, Pair, Run
from smoke.kit.samples import Part, Sampled, Scored, distance_to_cap, importance

# A metric that releases define in several ways has several values; what is logged must be one of them.
Metrics = dict[str, tuple[float, ...]]


def of_step(run: Run, index: int, expected: Expected) -> Metrics:
    """The metrics of the step at this index."""
    number = run.journals[0].start + index + 1
    epoch = number / factors.steps_per_epoch(run.row, len(run.journals))
    metrics: Metrics = {"loss": (expected.loss,), "grad_norm": (expected.norm,), "epoch": (epoch,)}
    numbers = [i for i, generation in enumerate(run.generations(run.journals[0])) if generation.step == index + 1]
    if numbers:
        metrics |= of_batches(run, [run.batches[i] for i in numbers])
        metrics["num_tokens"] = (run.tokens(numbers[-1] + 1),)
    if numbers and run.row.get("correction", "off") != "off":
        metrics |= _sampling(run, numbers)
    count = len(run.journals[0].steps[index].passes)
    ranks = len(run.journals)
    # `scores` go micro-batch by micro-batch, and within each rank by rank.
    metrics |= of_parts(run, [expected.scores[i * ranks : (i + 1) * ranks] for i in range(count)])
    if "bonus" in run.row["entropy"]:
        metrics["entropy_coef"] = (expected.coefficient,)
        # The mean over micro-batches, of which each has its part of a step's tokens.
        share = factors.accumulation(run.row) if run.objective.average == "token" else 1
        metrics["policy_loss"] = (expected.policy / share,)
    return metrics


def of_parts(run: Run, together: Sequence[Sequence[Pair]]) -> Metrics:
    """The metrics of micro-batches, each of all ranks."""
    flat = [[score for _, scores in parts for score in scores] for parts in together]
    advantages = [[s.advantage if s else 0.0 for part, _ in parts for s in part.samples] for parts in together]
    counted = [s.advantage for parts in together for part, _ in parts for s in part.samples if s is not None]
    metrics: Metrics = {}
    metrics["entropy"] = (mean(_token_mean(scores, lambda s: s.entropy) for scores in flat),)
    if run.objective.beta:
        metrics["kl"] = (
            mean(_token_mean(s, lambda x: reference.divergence(run.objective, x.now, x.then, x.first)) for s in flat),
        )
    # Rounding decides which sign an advantage of almost nothing has.
    if all(abs(advantage) > 1e-5 for advantage in counted):
        weights = [[_importance(run, part, scores) for part, scores in parts] for parts in together]
        metrics |= _clipping(run, flat, advantages, [[w for own in parts for w in own] for parts in weights])
    return metrics


def of_batches(run: Run, batches: Sequence[Sequence[Sampled]]) -> Metrics:
    """The metrics of completions and rewards."""

    def average(value: Callable[[Sequence[Sampled]], float]) -> tuple[float, ...]:
        return (mean(map(value, batches)),)

    def lengths(batch: Sequence[Sampled], *, ended: bool = False) -> list[int]:
        return [len(s.completion) for s in batch if not (ended and s.truncated)] or [0]

    metrics = {
        "reward": average(lambda batch: mean(s.total for s in batch)),
        "reward_std": (
            mean(_spread([s.total for s in batch]) for batch in batches),
            # Up to 0.27, the mean of the groups'.
            mean(_spread(group) for batch in batches for group in _groups(batch)),
        ),
        "frac_reward_zero_std": average(lambda batch: statistics.fmean(s.flat for s in batch)),
        "completions/mean_length": average(lambda batch: statistics.fmean(lengths(batch))),
        "completions/min_length": average(lambda batch: min(lengths(batch))),
        "completions/max_length": average(lambda batch: max(lengths(batch))),
        "completions/clipped_ratio": average(lambda batch: statistics.fmean(s.truncated for s in batch)),
        "completions/mean_terminated_length": average(lambda batch: statistics.fmean(lengths(batch, ended=True))),
        "completions/min_terminated_length": average(lambda batch: min(lengths(batch, ended=True))),
        "completions/max_terminated_length": average(lambda batch: max(lengths(batch, ended=True))),
    }
    names = ["spelling"] if run.row["rewards"] == "one" else ["spelling", "evenness"]
    for i, name in enumerate(names):
        columns = [[s.rewards[i] for s in batch] for batch in batches]
        metrics[f"rewards/{name}/mean"] = (mean(map(mean, columns)),)
        metrics[f"rewards/{name}/std"] = (mean(map(_spread, columns)),)
    return metrics


def _sampling(run: Run, numbers: Sequence[int]) -> Metrics:
    """How far another engine's log-probabilities were from the policy's, and the importance that follows from it."""
    import torch

    distances, ratios, near = [], [], math.inf
    for number in numbers:
        known = [(sample, run.fixed[number][sample.prompt + sample.completion][0]) for sample in run.batches[number]]
        # Of a completion that is masked no token counts, and the importance of all its tokens together is one.
        masked = [run.objective.mask_truncated and sample.truncated for sample, _ in known]
        trained = [pair for pair, left_out in zip(known, masked, strict=True) if not left_out]
        near = min([near, *(distance_to_cap(run.row, sample, then) for sample, then in trained)])
        distances.append(torch.cat([_distance(sample, then) for sample, then in trained] or [torch.zeros(1)]))
        importances = [importance(run.row, sample, then).reshape(-1) for sample, then in trained]
        if run.row["correction"].startswith("sequence"):
            importances += [torch.ones(1, dtype=torch.float64)] * sum(masked)
        ratios.append(torch.cat(importances or [torch.zeros(1, dtype=torch.float64)]))
    metrics: Metrics = {
        "sampling/sampling_logp_difference/mean": (mean(d.mean().item() for d in distances),),
        "sampling/sampling_logp_difference/max": (mean(d.max().item() for d in distances),),
    }
    if near < EDGE:  # rounding decides which is masked
        return metrics
    return metrics | {
        f"sampling/importance_sampling_ratio/{name}": (mean(value(ratio).item() for ratio in ratios),)
        for name, value in (("min", torch.min), ("mean", torch.mean), ("max", torch.max))
    }


def _distance(sample: Sampled, then: Any) -> Any:
    import torch

    return (then - torch.tensor(sample.logprobs, dtype=torch.float64)).abs()


def _importance(run: Run, part: Part, scores: Sequence[Scored | None]) -> list[Any]:
    pairs = zip(part.samples, scores, strict=True)
    return [1 if a is None or s is None else importance(run.row, a, s.then) for a, s in pairs]


def _clipping(
    run: Run, flat: list[list[Scored | None]], advantages: list[list[float]], importances: list[list[Any]]
) -> Metrics:
    """How many tokens were clipped, by the kind of clipping."""
    import torch

    o = run.objective
    if o.clipping == "gamma":
        weights = [
            [
                1.0 if s is None else reference.gamma_weight(o, a, s.now, s.then, w)
                for s, a, w in zip(scores, directions, weights, strict=True)
            ]
            for scores, directions, weights in zip(flat, advantages, importances, strict=True)
        ]
        return {"vespo/phi_seq_mean": (mean(map(mean, weights)),)}
    if o.clipping == "soft":
        return {}

    def share(scores: list[Scored | None], directions: list[float], above: bool) -> list[Any]:
        """For every sample, which of its tokens are clipped, or whether the sample is."""
        clipped = []
        for s, advantage in zip(scores, directions, strict=True):
            if s is None:
                clipped.append(torch.zeros(1 if o.per_sequence else 0, dtype=torch.float64))
                continue
            ratio = reference.ratios(o, s.now, s.then).detach()
            ratio = ratio[:1] if o.per_sequence else ratio
            if o.clipping == "weight":
                hit = (ratio > o.epsilon_high) & (advantage > 0)
            elif above:
                hit = (ratio.clamp(max=o.delta) > 1 + o.epsilon_high) & (advantage > 0)
            else:
                hit = (ratio < 1 - o.epsilon) & (advantage < 0)
            clipped.append(hit.double())
        return clipped

    high = [share(scores, directions, True) for scores, directions in zip(flat, advantages, strict=True)]
    low = [share(scores, directions, False) for scores, directions in zip(flat, advantages, strict=True)]
    means = {True: mean(map(_joined, high)), False: mean(map(_joined, low))}
    if o.clipping == "weight":
        return {"cispo_clip_ratio": (means[True],)}
    return {
        "clip_ratio/high_mean": (means[True],),
        "clip_ratio/low_mean": (means[False],),
        "clip_ratio/region_mean": (means[True] + means[False],),
        "clip_ratio/high_max": (mean(max(_rows(samples), default=math.nan) for samples in high),),
        "clip_ratio/low_min": (mean(min(_rows(samples), default=math.nan) for samples in low),),
    }


def _rows(samples: Sequence[Any]) -> list[float]:
    return [sample.mean().item() for sample in samples if len(sample)]


def _joined(samples: Sequence[Any]) -> float:
    """The mean over all tokens, 0 of none."""
    import torch

    tokens = torch.cat(list(samples))
    return tokens.mean().item() if len(tokens) else 0.0


def _token_mean(scores: Sequence[Scored | None], value: Callable[[Scored], Any]) -> float:
    return _joined([value(score).detach() for score in scores if score is not None]) if any(scores) else 0.0


def _groups(batch: Sequence[Sampled]) -> list[list[float]]:
    groups: dict[tuple[int, ...], list[float]] = {}
    for sample in batch:
        groups.setdefault(sample.prompt, []).append(sample.total)
    return list(groups.values())


def mean(values: Iterable[float]) -> float:
    """The mean of those that are no NaN, NaN of none."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.fmean(known) if known else math.nan


def _spread(values: Iterable[float]) -> float:
    """The sample standard deviation of those that are no NaN."""
    known = [value for value in values if not math.isnan(value)]
    return statistics.stdev(known) if len(known) > 1 else math.nan


def errors(expected: Metrics, entry: dict[str, Any]) -> dict[str, float]:
    """By name, how far a logged value is from what it should be, of those that this release logs.

    In units of the value where that is more than one. A mean of nothing is logged as None or NaN.
    """
    return {
        name: min((distance(entry[name], value) for value in values), key=extremes.badness)
        for name, values in expected.items()
        if name in entry
    }


def distance(logged: float | None, value: float) -> float:
    """How far a logged value is from what it should be, in units of the value where that is more than one."""
    logged = math.nan if logged is None else float(logged)
    if math.isnan(logged) and math.isnan(value):
        return 0.0
    return abs(logged - value) / max(1.0, abs(value))
