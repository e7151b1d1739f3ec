"""The verdict on two records: does the training change? In one sentence, and in numbers for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from builder.base import errors
from builder.base.text import word
from builder.trajectory import band
from builder.trajectory.band import ALARM, FEWEST, Departure, Result
from builder.trajectory.record import Record, Seed

Answer = Literal["same bits", "within", "outside", "fails"]
NAMES = {"kl": "KL", "grad_norm": "gradient norm"}  # in sentences; the others as they are


@dataclass(frozen=True)
class Verdict:
    """The answer on `after` against the band of `before`.

    `same`: the seeds whose numbers are the same to the last bit. `result`: the test, where one was needed.
    """

    before: Record
    after: Record
    answer: Answer
    same: int
    result: Result | None = None

    @property
    def good(self) -> bool:
        """Whether the training does not change."""
        return self.answer in ("same bits", "within")

    @property
    def title(self) -> str:
        """Which record is compared with which."""
        return " → ".join(labels(self.before, self.after))

    def __str__(self) -> str:
        return f"{self.title}: {self._answer()}"

    def _answer(self) -> str:
        seeds = f"{len(self.before.seeds)} and {len(self.after.seeds)} seeds"
        if self.answer == "same bits":
            return f"the training is the same, to the last bit, in {self.same} of {len(self.after.seeds)} seeds"
        if self.answer == "fails":
            reasons = list(self.after.failed.values())
            total = len(self.after.seeds) + len(reasons)
            return f"the training changes: {len(reasons)} of {total} seeds fail, the first with {reasons[0]}"
        assert self.result is not None
        if self.answer == "within":
            return f"the training does not change: within the band in {self._compared()} ({_p(self.result.p)}, {seeds})"
        first, *others = _strongest(self.result.departures)
        also = f"; so {'does' if len(others) == 1 else 'do'} {_list([_name(d) for d in others])}" if others else ""
        return (
            f"the training changes: {_name(first)} leaves the band, {words(first)}{also} ({_p(self.result.p)}, {seeds})"
        )

    def _compared(self) -> str:
        names = [name for name in self.before.names if name in self.after.names]
        alone = sorted({*self.before.names, *self.after.names} - set(names))
        number = f"all {len(names)} numbers" if not alone else f"{len(names)} numbers"
        return number + (
            f"; only one of the two logs {_list([NAMES.get(name, name) for name in alone])}" if alone else ""
        )

    def to_json(self) -> dict[str, Any]:
        """The verdict for programs."""
        result = self.result
        return {
            "before": labels(self.before, self.after)[0], "after": labels(self.before, self.after)[1],
            "answer": self.answer, "good": self.good, "sentence": str(self),
            "seeds": [len(self.before.seeds), len(self.after.seeds)], "same_bits": self.same,
            "p": result.p if result else None,
            "false_alarms": ALARM,
            "departures": [
                {"number": d.feature.number, "kind": d.feature.kind, "steps": [d.feature.first, d.feature.last],
                 "before": d.before, "after": d.after, "p": d.p}
                for d in (result.departures if result else ())
            ],
            "noticed": result.noticed if result else {},
        }  # fmt: skip


def judge(before: Record, after: Record) -> Verdict:
    """Judge `after` against the band of `before`. Raises BadInputError when they cannot be compared."""
    _require_comparable(before, after)
    bits = {seed.seed: seed.bits for seed in before.seeds}
    same = sum(bits.get(seed.seed) == seed.bits for seed in after.seeds)
    if len(after.failed) > len(before.failed):
        return Verdict(before, after, "fails", same)
    for record, what in ((before, "the band"), (after, "what is judged")):
        if len(record.seeds) < FEWEST:
            raise errors.BadInputError(
                f"{what} has {len(record.seeds)} seeds that trained to the end, and a comparison needs {FEWEST}",
                cause=next(iter(record.failed.values()), "it was recorded with a small --seeds"),
                next_step=f"vetted trajectories {word(record.stack)} --force",
            )
    if same == len(after.seeds):
        return Verdict(before, after, "same bits", same)
    result = band.compare(before, after)
    return Verdict(before, after, "outside" if result.alarm else "within", same, result)


def _require_comparable(before: Record, after: Record) -> None:
    if before.task != after.task:
        raise errors.BadInputError(
            f"{before.stack} and {after.stack} did not train the same task",
            cause="one was recorded by another version of smoke/trajectories",
            next_step=f"vetted trajectories {word(before.stack)}, then the same for {word(after.stack)}",
        )
    if before.steps != after.steps:
        raise errors.BadInputError(
            f"{before.stack} was recorded for {before.steps} steps, {after.stack} for {after.steps}",
            next_step=f"vetted trajectories {word(after.stack)} --steps {word(before.steps)} --force",
        )


def labels(before: Record, after: Record) -> tuple[str, str]:
    """A name for each of two records, with what else distinguishes them where the stack does not."""
    known: list[list[str]] = [[before.stack], [after.stack]]
    pairs = [
        (before.place.hardware, after.place.hardware),
        (before.place.engine, after.place.engine),
        (before.place.device, after.place.device),
        tuple(f"{r.place.threads} thread{'s' * (r.place.threads > 1)}" for r in (before, after)),
        (f"lock {before.lock[7:19]}", f"lock {after.lock[7:19]}") if before.stack == after.stack else ("", ""),
    ]
    for left, right in pairs:
        if left != right:
            known[0].append(left)
            known[1].append(right)
    if known[0] == known[1]:
        left, right = _seeds(before.seeds), _seeds(after.seeds)
        known = [[*known[0], left], [*known[1], right if right != left else "again"]]
    return tuple(f"{stack} ({', '.join(more)})" if more else stack for stack, *more in known)  # type: ignore[return-value]


def _seeds(seeds: list[Seed]) -> str:
    numbers = [seed.seed for seed in seeds]
    return f"seeds {min(numbers)} to {max(numbers)}" if numbers else "no seeds"


def words(departure: Departure) -> str:
    """How a feature leaves the band."""
    feature = departure.feature
    steps = f"in steps {feature.first} to {feature.last}"
    if feature.kind == "level":
        return f"at {departure.after:.3g} instead of {departure.before:.3g} {steps}"
    if feature.kind == "noise":
        factor = math.exp(departure.after - departure.before)
        return f"moving {_times(factor)} from step to step {steps}"
    factor = departure.after / departure.before if departure.before else math.inf
    return f"differing {_times(factor)} from seed to seed {steps}"


def _times(factor: float) -> str:
    return f"{factor:.3g} times as much" if factor < 1000 else "where it did not before"


def _strongest(departures: tuple[Departure, ...]) -> list[Departure]:
    """One departure of each number, the strongest number first: that of its level, which says most, if it has one."""
    strongest: dict[str, Departure] = {}
    for departure in departures:
        known = strongest.setdefault(departure.feature.number, departure)
        if departure.feature.kind == "level" != known.feature.kind:
            strongest[departure.feature.number] = departure
    return list(strongest.values())


def _name(departure: Departure) -> str:
    return NAMES.get(departure.feature.number, departure.feature.number)


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _p(p: float) -> str:
    return "p < 0.001" if p <= ALARM else f"p = {p:.2g}"
