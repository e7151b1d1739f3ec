"""Checks of what a run's evaluations sampled and logged: rewards, lengths, loss, entropy and KL divergence."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from smoke.kit import journal, metrics, samples
from smoke.kit.entropy import Bonus, mean_entropy
from smoke.kit.journal import Generation, Tokens
from smoke.kit.metrics import Metrics
from smoke.kit.oracle import Pair, Run
from smoke.kit.samples import Part, Sampled, Scored

if TYPE_CHECKING:
    from smoke.kit.interaction import Training

# By all tokens of a completion: log-probabilities and entropies of its own.
Scores = Mapping[Tokens, tuple[Any, Any]]


def _evaluations(run: Run) -> Iterator[tuple[str, dict[str, float], list[list[Generation]]]]:
    """The name of each set that was evaluated on, what was logged of it, and its batches of all ranks."""
    sets = journal.eval_sets(run.row)
    names = itertools.cycle(sets)
    logged = [entry for entry in run.journals[0].log if any(_key(name, "reward", entry) in entry for name in sets)]
    rounds = [
        list(batch) for batch in zip(*([g for g in j.generations if g.evaluates] for j in run.journals), strict=True)
    ]
    size = len(rounds) // max(1, len(logged))
    for i, entry in enumerate(logged):
        yield next(names), entry, rounds[i * size : (i + 1) * size]


def _key(name: str, metric: str, entry: Mapping[str, float]) -> str:
    """The key of a metric of a set: TRL's metrics lack the set's name, or have it as the Trainer's do."""
    whole = "_".join(filter(None, ("eval", name, metric)))
    return whole if whole in entry else f"eval_{metric}"


def reward_errors(training: Training, run: Run) -> dict[str, float]:
    """By evaluation, how far the logged reward is from the mean of the rewards; 1 where prompts are wrong."""
    if run.row["evaluation"] == "never":
        return {}
    errors = {}
    prompts = {name: {training.tokens(row) for row in data} for name, data in training.eval_sets.items()}
    evaluations = list(_evaluations(run))
    for i, (name, entry, rounds) in enumerate(evaluations):
        batches = [samples.judged(run.row, generations) for generations in rounds]
        counts = Counter(sample.prompt for batch in batches for sample in batch)
        if counts != dict.fromkeys(prompts[name], training.eval_generations):
            errors[f"evaluation {i}: the prompts"] = 1.0
        # The mean over batches of the mean of those that were judged.
        expected = metrics.mean(metrics.mean(sample.total for sample in batch) for batch in batches)
        errors[f"evaluation {i}"] = metrics.distance(entry.get(_key(name, "reward", entry)), expected)
        # The Trainer's own name of it, by which the best checkpoint is chosen.
        if (loss := "_".join(filter(None, ("eval", name, "loss")))) not in entry:
            errors[f"evaluation {i}: no {loss}"] = 1.0
    # At the start, and at the end of every generation's steps; a resumed run has two such starts.
    expected_count = (2 if run.row["saving"] == "resumed" else 3) * len(prompts)
    if len(evaluations) != expected_count:
        errors["evaluations"] = abs(len(evaluations) - expected_count)
    return errors


def metric_errors(run: Run, bonus: Bonus) -> Iterator[tuple[float, dict[str, float]]]:
    """Of every evaluation, by name, how far all else that was logged is from what it should be.

    With it, how near the nearest edge was on which rounding decides.
    """
    for i, (name, entry, rounds) in enumerate(_evaluations(run)):
        if not rounds:  # more evaluations than were sampled for, which the errors of rewards say
            continue
        # TRL's metrics lack the set's name, the Trainer's have it.
        own = {key.removeprefix("eval_").removeprefix(f"{name}_"): value for key, value in entry.items()}
        batches = [samples.judged(run.row, generations) for generations in rounds]
        near, of_policy = _of_policy(run, rounds, batches, bonus)
        errors = metrics.errors(metrics.of_batches(run, batches) | of_policy, own)
        yield near, {f"evaluation {i}, {key}": error for key, error in errors.items()}


def _of_policy(
    run: Run, rounds: Sequence[list[Generation]], batches: Sequence[list[Sampled]], bonus: Bonus
) -> tuple[float, Metrics]:
    """How near the nearest edge was; the loss, and what the policy says of the tokens."""
    import torch

    steps = rounds[0][0].step
    effect = bonus.effects[run.journals[0].start + steps]
    losses, policy_losses, together, near = [], [], [], [bonus.near]
    with torch.no_grad():
        policy, first = run.policy_at(steps), run.reference_at(steps) if run.objective.beta else None
        for generations, batch in zip(rounds, batches, strict=True):
            now, base = run.score(policy, batch), run.score(first, batch) if first is not None else {}
            parts = [_pair(run, own, now, base) for own in _by_rank(generations, batch)]
            masks, gap = run.kept(parts)
            near += [gap, run.nearest(parts)]
            for pair, mask in zip(parts, masks, strict=True):
                policy_losses.append(run.loss(pair, mask, run.counted(batch)))
                losses.append(policy_losses[-1] - effect * mean_entropy(pair[1], mask)[0])
            together.append(parts)
    expected = metrics.of_parts(run, together)
    before = itertools.takewhile(lambda generation: generation is not rounds[0][0], run.journals[0].generations)
    expected["num_tokens"] = (run.tokens(sum(not generation.evaluates for generation in before)),)
    if "bonus" in run.row["entropy"]:
        expected["policy_loss"] = (torch.stack(policy_losses).mean().item(),)
    # Of several ranks, Accelerate takes the losses of as many rows as the data has prompts, and leaves the rest out.
    if len(run.journals) == 1:
        expected["loss"] = (torch.stack(losses).mean().item(),)
    return min(near), expected


def _by_rank(generations: Sequence[Generation], batch: Sequence[Sampled]) -> Iterator[list[Sampled]]:
    rest = iter(batch)
    for generation in generations:
        yield list(itertools.islice(rest, len(generation.prompts)))


def _pair(run: Run, own: Sequence[Sampled], now: Scores, base: Scores) -> Pair:
    kept = [None if run.objective.mask_truncated and sample.truncated else sample for sample in own]
    return Part(-1, kept), [None if sample is None else _scored(sample, now, base) for sample in kept]


def _scored(sample: Sampled, now: Scores, base: Scores) -> Scored:
    """An evaluation trains nothing: the policy is still that which sampled."""
    row = sample.prompt + sample.completion
    log_probs, entropy = now[row]
    return Scored(log_probs, log_probs, base[row][0] if base else None, entropy)
