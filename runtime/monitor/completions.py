"""What became of each completion: its reward and advantage, how often it reached the loss, and its equals."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Union

from . import groups, judge, run, samples


@dataclass(frozen=True)
class Generated:
    """A generation: fingerprints and advantages of this process, rewards of all. `complete`: it ends the one before."""

    marks: Any
    advantages: Any
    rewards: Any
    complete: bool


@dataclass(frozen=True)
class Used:
    """Completions that a loss was computed from."""

    marks: Any
    advantages: Any


@dataclass(frozen=True)
class Surprised:
    """How unlikely completions are under the policy that sampled them, in nats."""

    marks: Any
    nats: Any


Event = Union[Generated, Used, Surprised]


class Completions:
    """Collects the events of a step as tensors; `account` fetches them at its end."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ledger = samples.Ledger()
        self.earlier: set[int] = set()  # fingerprints of the generation before
        self.signals = self.never = self.lost = 0  # generations with something to learn from, and without

    def resume(self, last: Mapping[str, Any]) -> None:
        """Count on from the last numbers of an earlier process."""
        self.never, self.lost = (int(judge.number(last.get(name)) or 0) for name in ("signal_never", "signal_lost"))

    def account(self, trainer: Any, absent: Mapping[str, str], *, resumed: bool) -> dict[str, float]:
        """The numbers of the step."""
        numbers: dict[str, float] = {}
        surprise: dict[int, float] = {}
        generations: list[list[int]] = []
        events, self.events = self.events, []
        for event in events:
            marks = event.marks.tolist()
            if isinstance(event, Surprised):
                surprise.update(zip(marks, event.nats.tolist()))
                continue
            advantages = event.advantages.reshape(len(marks), -1)[:, 0].tolist()
            keys = list(zip(marks, advantages))
            if isinstance(event, Used):
                self.ledger.used(keys)
                continue
            self.ledger.generated(keys, getattr(trainer, "num_iterations", 1), complete=event.complete)
            self._advantages(numbers, advantages, event.rewards, trainer, absent)
            generations.append(marks)
        numbers.update(self.ledger.take())
        for marks in generations:
            self._repeats(numbers, marks, surprise, trainer.num_generations)
        if generations:
            self.earlier = {mark for marks in generations for mark in marks}
            self._signal(numbers, resumed=resumed)
        return numbers

    def _advantages(
        self, numbers: dict[str, float], advantages: list[float], rewards: Any, trainer: Any, absent: Mapping[str, str]
    ) -> None:
        rule = run.rule(trainer)
        rules = [rule]
        noise = [groups.UNKNOWN] * len(advantages)
        scored = True
        table = rewards.tolist() if rewards is not None and "rewards" not in absent else []
        first = trainer.accelerator.process_index * len(advantages)
        if table:
            infinite = sum(math.isinf(value) for row in table for value in row)
            numbers["rewards_infinite"] = infinite + numbers.get("rewards_infinite", 0.0)
            if infinite:
                return  # neither formula nor groups mean anything
            scored = not any(all(math.isnan(value) for value in row) for row in table)
            if not scored:  # before TRL 1.12 a completion that nobody scored counted as a reward of 0
                rules.append(dataclasses.replace(rule, skip_unscored=False))
            formulas = {each: groups.expected(table, each)[first : first + len(advantages)] for each in rules}
            errors = {each: groups.error(advantages, formula) for each, formula in formulas.items()}
            rule = min(rules, key=lambda each: math.inf if math.isnan(errors[each]) else errors[each])
            numbers["advantage_error"] = _worse(errors[rule], numbers.get("advantage_error", 0.0))
            noise = [entry.noise for entry in formulas[rule]]
            _share(numbers, groups.alike(table, rule), len(table) // rule.size)
        if len(advantages) % rule.size:
            return  # a group is spread over processes
        if scored:
            total = groups.sums(advantages, rule.size, noise)
            numbers["advantage_sum"] = _worse(total, numbers.get("advantage_sum", 0.0))
        if not table:
            _share(numbers, groups.constant(advantages, rule.size, noise), len(advantages) // rule.size)

    def _signal(self, numbers: dict[str, float], *, resumed: bool) -> None:
        """For how many generations there has been nothing to learn from: since the start, or since there was."""
        share = numbers.get("groups_constant")
        if share is None:
            return
        if share < 1:
            self.signals, self.never, self.lost = self.signals + 1, 0, 0
        elif self.signals or (resumed and not self.never):
            self.lost += 1
        else:
            self.never += 1
        numbers["signal_never"], numbers["signal_lost"] = float(self.never), float(self.lost)

    def _repeats(self, numbers: dict[str, float], marks: list[int], surprise: dict[int, float], size: int) -> None:
        """How unlikely the equal completions of a generation are, and those of the one before, in nats."""
        nats = numbers.get("repeat_nats", 0.0)
        for start in range(0, len(marks) - len(marks) % size, size):
            mark, number = Counter(marks[start : start + size]).most_common(1)[0]
            nats = max(nats, (number - 1) * surprise.get(mark, 0.0) - math.log(math.comb(size, number)))
        again = [surprise.get(mark, 0.0) for mark in set(marks) & self.earlier]
        numbers["repeat_nats"] = max([nats, *again])
        numbers["completions_equal"] = 1 - len(set(marks)) / max(1, len(marks))


def _share(numbers: dict[str, float], constant: int, number: int) -> None:
    """The share of groups in which nothing differs; of several generations in a step, the least."""
    if number:
        numbers["groups_constant"] = min(constant / number, numbers.get("groups_constant", 1.0))


def _worse(value: float, other: float) -> float:
    """The larger; what is no number is worse than any."""
    return math.nan if math.isnan(value) or math.isnan(other) else max(value, other)
