"""What a run should have done, computed from nothing but the tokens and rewards that really occurred in it.

From these and the weights at the beginning of each step follow log-probabilities, advantages, loss, gradient, clipping
and update, by the plain model of decoder.py and the published objectives of reference.py, in float64.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from smoke.kit import decoder, factors, reference, tiny
from smoke.kit.decoder import Adapter, Shape
from smoke.kit.factors import Row
from smoke.kit.journal import Generation, Journal, Tokens, Weights
from smoke.kit.reference import Objective
from smoke.kit.samples import PAD, Part, Sampled, Scored, distance_to_cap, importance, judged, of_tokens

# Rounding may decide on which side of an edge, where a gradient jumps, a ratio or an entropy is when it is this near.
EDGE = 2e-5


@dataclass
class Expected:
    """What a step should have done; `loss` is the mean over the ranks, `gradients` are from before clipping.

    `scores` are those of every sample of every part. `near` is how near the nearest edge was.
    """

    loss: float
    gradients: Weights
    norm: float
    scores: list[tuple[Part, list[Scored | None]]]
    kept: list[list[Any]]
    near: float


@dataclass
class Run:
    """A run, or the part of one from a start to the next stop, as its ranks recorded it."""

    row: Row
    shape: Shape
    adapter: Adapter | None
    initial: Weights
    journals: list[Journal]
    objective: Objective = field(init=False)

    def __post_init__(self) -> None:
        self.objective = factors.objective(self.row)

    @cached_property
    def batches(self) -> list[list[Sampled]]:
        """The completions of every generation for training, of all ranks, in the order of the ranks."""
        rounds = zip(*(self.generations(journal) for journal in self.journals), strict=True)
        return [judged(self.row, list(generations)) for generations in rounds]

    @staticmethod
    def generations(journal: Journal) -> list[Generation]:
        """A rank's generations for training."""
        return [generation for generation in journal.generations if not generation.evaluates]

    @property
    def uses(self) -> int:
        """The micro-batches that one generation is for."""
        return factors.micro_batches(self.row) * factors.iterations(self.row)

    def parts(self, index: int) -> list[list[Part]]:
        """The micro-batches of a step, each of all ranks. Raises ValueError for a row that was never sampled."""
        before = sum(len(step.passes) for step in self.journals[0].steps[:index])
        ranks = [journal.steps[index].passes for journal in self.journals]
        return [
            [self._part((before + i) // self.uses, rows) for rows in together]
            for i, together in enumerate(zip(*ranks, strict=True))
        ]

    def _part(self, batch: int, rows: Sequence[Tokens]) -> Part:
        if batch >= len(self.batches):
            raise ValueError(f"trained on {batch + 1} generations, and sampled {len(self.batches)}")
        known: dict[Tokens, Sampled | None] = {}
        for sample in self.batches[batch]:
            masked = self.objective.mask_truncated and sample.truncated
            known |= {sample.prompt: None} if masked else {}
            known[sample.prompt + sample.completion] = None if masked else sample
        if strangers := [row for row in rows if row not in known]:
            raise ValueError(f"trained on a row that was not sampled: {tiny.decode(list(strangers[0]))!r}")
        return Part(batch, [known[row] for row in rows])

    def trained_wrong(self) -> list[str]:
        """Completions that were not trained on exactly as often as configured."""
        seen: list[Counter[Tokens]] = [Counter() for _ in self.batches]
        for journal in self.journals:
            for number, rows in enumerate(rows for step in journal.steps for rows in step.passes):
                if number // self.uses < len(seen):
                    seen[number // self.uses].update(rows)
        wrong = []
        for batch, count in zip(self.batches, seen, strict=True):
            expected: Counter[Tokens] = Counter()
            for sample in batch:
                masked = self.objective.mask_truncated and sample.truncated
                expected[sample.prompt + (() if masked else sample.completion)] += factors.iterations(self.row)
            wrong += [
                f"{tiny.decode(list(row))!r} {count[row]} times, not {expected[row]}"
                for row in {*expected, *count}
                if expected[row] != count[row]
            ]
        return wrong

    def weights_before(self, index: int) -> Weights:
        """All parameters before a step, in float64, those that are trained with gradients."""
        return {
            name: weight.double().requires_grad_(self.adapter is None or decoder.is_adapter(name))
            for name, weight in self.journals[0].steps[index].before.items()
        }

    def reference_at(self, steps: int) -> Weights:
        """The reference model's weights after so many steps of this run."""
        weights = {name: weight.double() for name, weight in self.initial.items()}
        if self.row["kl"] == "moving reference":
            for index in range(steps):
                after = self.journals[0].after(index)
                weights = {
                    name: factors.MIXUP * after[name].double() + (1 - factors.MIXUP) * weight
                    for name, weight in weights.items()
                }
        return decoder.plain(weights, self.adapter, without=True)

    @cached_property
    def fixed(self) -> list[dict[Tokens, tuple[Any, Any]]]:
        """By batch and tokens: log-probabilities when sampled, and under the reference (None without KL divergence)."""
        import torch

        scored = []
        with torch.no_grad():
            for batch, generation in zip(self.batches, self.generations(self.journals[0]), strict=True):
                begun = max(generation.step - 1, 0)
                sampler = decoder.plain(
                    {name: w.double() for name, w in self.journals[0].steps[begun].before.items()}, self.adapter
                )
                then = self._score(sampler, batch)
                first = self._score(self.reference_at(begun), batch) if self.objective.beta else {}
                scored.append({key: (value[0], first[key][0] if first else None) for key, value in then.items()})
        return scored

    def _score(self, weights: Weights, samples: Iterable[Sampled]) -> dict[Tokens, tuple[Any, Any]]:
        """Log-probabilities and entropies of every completion's tokens, by all its tokens."""
        rows = {sample.prompt + sample.completion: sample for sample in samples}
        if not rows:
            return {}
        scores = decoder.logits(self.shape, weights, list(rows), PAD) / self.objective.temperature
        return {row: of_tokens(score, sample) for score, (row, sample) in zip(scores, rows.items(), strict=True)}

    def expected(self, index: int) -> Expected:
        """What the step at this index should have done."""
        import torch

        parameters = self.weights_before(index)
        together = self.parts(index)
        present = [sample for parts in together for part in parts for sample in part.samples if sample is not None]
        now = self._score(decoder.plain(parameters, self.adapter), present)
        scores = [
            [(part, [self._scored(part.batch, sample, now) for sample in part.samples]) for part in parts]
            for parts in together
        ]
        losses, kept, near = [], [], [math.inf]
        for parts in scores:
            masks, gap = self._kept(parts)
            kept += masks
            near += [gap, *(self._nearest_edge(scored) for _, scored in parts)]
            near += [self._nearest_cap(part, scored) for part, scored in parts]
            losses += [self._loss(part, scored, mask) for (part, scored), mask in zip(parts, masks, strict=True)]
        loss = torch.stack(losses).sum() / len(self.journals)
        trained = {name: weight for name, weight in parameters.items() if weight.requires_grad}
        if loss.requires_grad:
            gradients = dict(
                zip(trained, torch.autograd.grad(loss, list(trained.values()), allow_unused=True), strict=True)
            )
        else:
            gradients = dict.fromkeys(trained)
        gradients = {n: torch.zeros_like(trained[n]) if g is None else g for n, g in gradients.items()}
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
        return Expected(loss.item(), gradients, norm, [pair for parts in scores for pair in parts], kept, min(near))

    def _scored(self, batch: int, sample: Sampled | None, now: Mapping[Tokens, tuple[Any, Any]]) -> Scored | None:
        if sample is None:
            return None
        row = sample.prompt + sample.completion
        return Scored(now[row][0], *self.fixed[batch][row], now[row][1])

    def _kept(self, parts: list[tuple[Part, list[Scored | None]]]) -> tuple[list[list[Any]], float]:
        """Which tokens count, for every sample of a micro-batch of every rank, and how near the threshold is to one."""
        import torch

        if self.row["entropy"] != "top quarter":
            return [[1] * len(scored) for _, scored in parts], math.inf
        entropies = [s.entropy.detach() for _, scored in parts for s in scored if s is not None]
        if not entropies:
            return [[1] * len(scored) for _, scored in parts], math.inf
        threshold, gap = top_threshold(torch.cat(entropies))
        masks = [[1 if s is None else (s.entropy >= threshold).double() for s in scored] for _, scored in parts]
        return masks, gap

    def _nearest_edge(self, scored: Sequence[Scored | None]) -> float:
        o = self.objective
        edges = {"ratio": (1 - o.epsilon, 1 + o.epsilon_high, o.delta), "weight": (o.epsilon_high,)}.get(o.clipping, ())
        distances = [
            (reference.ratios(o, s.now, s.then).detach() - edge).abs().min().item()
            for s in scored
            if s is not None
            for edge in edges
        ]
        return min(distances, default=math.inf)

    def _nearest_cap(self, part: Part, scored: Sequence[Scored | None]) -> float:
        """How near the nearest importance is to where it would be masked."""
        distances = [
            distance_to_cap(self.row, sample, s.then)
            for sample, s in zip(part.samples, scored, strict=True)
            if sample is not None and s is not None
        ]
        return min(distances, default=math.inf)

    def _loss(self, part: Part, scored: Sequence[Scored | None], kept: Sequence[Any]) -> Any:
        """What a micro-batch adds to the loss of its rank."""
        import torch

        o, share = self.objective, 1 / factors.accumulation(self.row)
        sums, lengths = [], []
        for sample, score, mask in zip(part.samples, scored, kept, strict=True):
            if sample is None or score is None:
                sums.append(torch.zeros((), dtype=torch.float64))
                lengths.append(0)
                continue
            weight = mask * importance(self.row, sample, score.then)
            tokens = reference.token_losses(o, sample.advantage, score.now, score.then, score.first, weight)
            sums.append(tokens.sum())
            lengths.append(len(tokens))
        total = torch.stack(sums).sum()
        if o.average == "sequence":
            means = [tokens / max(length, 1) for tokens, length in zip(sums, lengths, strict=True)]
            loss = torch.stack(means).mean() * share
        elif o.average == "token":
            # The tokens that a generation gives to a step, on average, if not all of them are for one step.
            counted = sum(len(s.completion) for s in self.batches[part.batch] if not (o.mask_truncated and s.truncated))
            divided = factors.accumulation(self.row) / factors.micro_batches(self.row)
            loss = total / (max(counted, 1) * divided / len(self.journals))
        else:
            count = {"part": max(sum(lengths), 1), "length": len(sums) * o.length, "sum": len(sums)}[o.average]
            loss = total / count * share
        if self.row["entropy"] == "bonus":
            entropies = [score.entropy for score in scored if score is not None]
            if entropies:
                loss = loss - factors.ENTROPY_BONUS * torch.cat(entropies).mean() * share
        return loss


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
