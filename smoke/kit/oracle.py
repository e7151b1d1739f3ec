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
from smoke.kit.entropy import Bonus, mean_entropy, top_threshold
from smoke.kit.factors import Row
from smoke.kit.journal import Generation, Journal, Tokens, Weights
from smoke.kit.reference import Objective
from smoke.kit.samples import PAD, Part, Sampled, Scored, distance_to_cap, importance, judged, of_tokens

# Rounding may decide on which side of an edge, where a gradient jumps, a ratio or an entropy is when it is this near.
EDGE = 2e-5


# A micro-batch of one rank, and what the policies say of each of its samples.
Pair = tuple[Part, list[Scored | None]]


@dataclass
class Expected:
    """What a step should have done; `loss` is the mean over the ranks, `gradients` are from before clipping.

    `policy` is the loss without the bonus for entropy, and `coefficient` that of the bonus after the step. `scores` are
    those of every sample of every part. `near` is how near the nearest edge was.
    """

    loss: float
    policy: float
    coefficient: float
    gradients: Weights
    norm: float
    scores: list[Pair]
    near: float


@dataclass
class Run:
    """A run, or the part of one from a start to the next stop, as its ranks recorded it.

    `earlier_tokens` are those of prompts and completions of the parts before.
    """

    row: Row
    shape: Shape
    adapter: Adapter | None
    initial: Weights
    journals: list[Journal]
    earlier_tokens: int = 0
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

    def tokens(self, generations: int) -> int:
        """The tokens of prompts and completions of so many generations, and of the parts before."""
        samples = (sample for batch in self.batches[:generations] for sample in batch)
        return self.earlier_tokens + sum(len(sample.prompt) + len(sample.completion) for sample in samples)

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
        if period := factors.reference_period(self.row):
            for index in range(period - 1, steps, period):
                after = self.journals[0].after(index)
                weights = {
                    name: factors.MIXUP * after[name].double() + (1 - factors.MIXUP) * weight
                    for name, weight in weights.items()
                }
        return decoder.plain(weights, self.adapter, without=True)

    def policy_at(self, steps: int) -> Weights:
        """The policy's weights after so many steps of this run, merged."""
        record = self.journals[0]
        weights = record.steps[steps].before if steps < len(record.steps) else record.last
        return decoder.plain({name: weight.double() for name, weight in weights.items()}, self.adapter)

    @cached_property
    def fixed(self) -> list[dict[Tokens, tuple[Any, Any]]]:
        """By batch and tokens: log-probabilities when sampled, and under the reference (None without KL divergence)."""
        import torch

        scored = []
        with torch.no_grad():
            for batch, generation in zip(self.batches, self.generations(self.journals[0]), strict=True):
                begun = max(generation.step - 1, 0)
                then = self.score(self.policy_at(begun), batch)
                first = self.score(self.reference_at(begun), batch) if self.objective.beta else {}
                scored.append({key: (value[0], first[key][0] if first else None) for key, value in then.items()})
        return scored

    def score(self, weights: Weights, samples: Iterable[Sampled]) -> dict[Tokens, tuple[Any, Any]]:
        """Log-probabilities and entropies of every completion's tokens, by all its tokens."""
        rows = {sample.prompt + sample.completion: sample for sample in samples}
        if not rows:
            return {}
        scores = decoder.logits(self.shape, weights, list(rows), PAD) / self.objective.temperature
        return {row: of_tokens(score, sample) for score, (row, sample) in zip(scores, rows.items(), strict=True)}

    def expected(self, index: int, bonus: Bonus) -> Expected:
        """What the step at this index should have done. `bonus` is that of the steps before, and takes note of it."""
        import torch

        parameters = self.weights_before(index)
        together = self.parts(index)
        present = [sample for parts in together for part in parts for sample in part.samples if sample is not None]
        now = self.score(decoder.plain(parameters, self.adapter), present)
        scores = [
            [(part, [self._scored(part.batch, sample, now) for sample in part.samples]) for part in parts]
            for parts in together
        ]
        losses, near, entropies = [], [], []
        for parts in scores:
            masks, gap = self.kept(parts)
            near += [gap, self.nearest(parts)]
            # The tokens that a generation gives to a step, on average, if not all of them are for one step.
            tokens = self.counted(self.batches[parts[0][0].batch]) * factors.accumulation(self.row)
            tokens /= factors.micro_batches(self.row)
            losses += [self.loss(pair, mask, tokens) for pair, mask in zip(parts, masks, strict=True)]
            entropies += [mean_entropy(scored, mask) for (_, scored), mask in zip(parts, masks, strict=True)]
        share = 1 if self.objective.average == "token" else 1 / factors.accumulation(self.row)
        policy = torch.stack(losses).sum() * share / len(self.journals)
        loss = policy - bonus.effects[-1] * torch.stack([mean for mean, _ in entropies]).mean()
        bonus.note(entropies)
        near.append(bonus.near)
        trained = {name: weight for name, weight in parameters.items() if weight.requires_grad}
        if loss.requires_grad:
            gradients = dict(
                zip(trained, torch.autograd.grad(loss, list(trained.values()), allow_unused=True), strict=True)
            )
        else:
            gradients = dict.fromkeys(trained)
        gradients = {n: torch.zeros_like(trained[n]) if g is None else g for n, g in gradients.items()}
        norm = math.sqrt(sum(g.square().sum().item() for g in gradients.values()))
        flat = [pair for parts in scores for pair in parts]
        return Expected(loss.item(), policy.item(), bonus.coefficient, gradients, norm, flat, min(near))

    def _scored(self, batch: int, sample: Sampled | None, now: Mapping[Tokens, tuple[Any, Any]]) -> Scored | None:
        if sample is None:
            return None
        row = sample.prompt + sample.completion
        return Scored(now[row][0], *self.fixed[batch][row], now[row][1])

    def kept(self, parts: list[Pair]) -> tuple[list[list[Any]], float]:
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

    def nearest(self, parts: list[Pair]) -> float:
        """How near the nearest ratio, importance or completion of a micro-batch is to where rounding decides."""
        edges = [self._nearest_edge(scored) for _, scored in parts]
        return min([*edges, *(self._nearest_limit(part, scored) for part, scored in parts)])

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

    def _nearest_limit(self, part: Part, scored: Sequence[Scored | None]) -> float:
        """How near the nearest importance or completion is to where it would be masked."""
        pairs = [(a, s) for a, s in zip(part.samples, scored, strict=True) if a is not None and s is not None]
        distances = [distance_to_cap(self.row, sample, s.then) for sample, s in pairs]
        worse = [(sample, s) for sample, s in pairs if sample.advantage < 0]
        distances += [abs(self._drift(sample, s) - self.objective.off_policy) for sample, s in worse]
        return min(distances, default=math.inf)

    def left_behind(self, sample: Sampled, score: Scored) -> bool:
        """Does a completion not count, because the policy has moved away from it?"""
        return sample.advantage < 0 and self._drift(sample, score) > self.objective.off_policy

    def _drift(self, sample: Sampled, score: Scored) -> float:
        import torch

        sampler = torch.tensor(sample.logprobs, dtype=torch.float64) if sample.logprobs else score.then
        return reference.drift(score.now, sampler)

    def counted(self, batch: Iterable[Sampled]) -> float:
        """The tokens of a generation of all ranks that are trained on, a rank's share of them."""
        masks = self.objective.mask_truncated
        return max(sum(len(s.completion) for s in batch if not (masks and s.truncated)), 1) / len(self.journals)

    def loss(self, pair: Pair, kept: Sequence[Any], tokens: float) -> Any:
        """The policy loss of a micro-batch of one rank, averaged as the objective says; `tokens` are those of a step.

        Without the division by the micro-batches of a step, but with that by its tokens.
        """
        import torch

        o = self.objective
        sums, lengths = [], []
        for sample, score, mask in zip(pair[0].samples, pair[1], kept, strict=True):
            if sample is None or score is None:
                sums.append(torch.zeros((), dtype=torch.float64))
                lengths.append(0)
                continue
            weight = importance(self.row, sample, score.then)
            counts = mask * (not self.left_behind(sample, score))
            losses = reference.token_losses(o, sample.advantage, score.now, score.then, score.first, counts, weight)
            sums.append(losses.sum())
            lengths.append(len(losses))
        if o.average == "sequence":
            means = [total / max(length, 1) for total, length in zip(sums, lengths, strict=True)]
            return torch.stack(means).mean()
        count = {"token": tokens, "part": max(sum(lengths), 1), "length": len(sums) * o.length, "sum": len(sums)}
        return torch.stack(sums).sum() / count[o.average]
