"""How often does the test of the golden trajectories alarm without a change? `python -m benchmarks.trajectories POOL`

POOL is a record of one stack with many seeds. Pairs of groups of its seeds are compared: every alarm is a false one.
Then every OTHER record is judged against the first group.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from builder.base import errors, project
from builder.pages import evidence
from builder.pages.trajectories import Pair
from builder.trajectory import band, comparison, record
from builder.trajectory.band import Result
from builder.trajectory.record import Record


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print, and write the evidence; the exit code is 1 when there was a false alarm."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trajectories", description=__doc__)
    parser.add_argument("pool", type=Path, nargs="+")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--size", type=int, default=30, help="seeds in a group")
    parser.add_argument("--record", action="store_true", help="write docs/evidence/trajectories.json")
    options = parser.parse_args(arguments)
    home = project.find()
    pool = together([record.read(file, str(file)) for file in options.pool])
    pairs = list(groups(pool, options.pairs, options.size))
    results: list[Result] = []
    for number, (before, after) in enumerate(pairs, 1):
        results.append(band.compare(before, after))
        print(f"pair {number}: p = {results[-1].p:.3g}", file=sys.stderr)
    verdicts = [each for each in comparison.pairs(comparison.all_records(home)) if not isinstance(each, str)]
    for each in verdicts:
        print(each)
    alarms = sum(result.alarm for result in results)
    print(f"{alarms} false alarms in {len(results)} pairs of {options.size} seeds")
    if options.record:
        measured = {
            "stack": pool.stack, "seeds": len(pool.seeds), "steps": pool.steps, "size": options.size,
            "pairs": len(results), "disjoint": disjoint(pool, options.pairs, options.size),
            "alarms": alarms, "smallest_p": min(result.p for result in results),
            "noticed": {name: [noticed(results, name), mean(pool, name)] for name in pool.names},
            "verdicts": [
                Pair(sentence=str(each), good=each.good, p=each.result.p if each.result else None).model_dump()
                for each in verdicts
            ],
        }  # fmt: skip
        command = " ".join(["python -m benchmarks.trajectories", *(arguments or sys.argv[1:])])
        with home.holding("documents") as scratch:
            print(home.relative(evidence.record(home, "trajectories", command, measured, scratch)), file=sys.stderr)
    return 1 if alarms else 0


def together(records: Sequence[Record]) -> Record:
    """One record with the seeds of all. Raises BadInputError if they are not of one training, or share a seed."""
    first = records[0]
    for other in records[1:]:
        if any(getattr(other, what) != getattr(first, what) for what in ("lock", "task", "steps", "place")):
            raise errors.BadInputError(
                f"a record of {other.stack} and one of {first.stack} are not of one training",
                cause="they differ in lock, task, steps or place",
                next_step="name records that one command made, each with other seeds (--first)",
            )
    seeds = [seed for each in records for seed in each.seeds]
    if len({seed.seed for seed in seeds}) < len(seeds):
        raise errors.BadInputError("a seed is in two of the records", next_step="record others with --first")
    return first.model_copy(
        update={"seeds": seeds, "failed": {k: v for each in records for k, v in each.failed.items()}}
    )


def disjoint(pool: Record, pairs: int, size: int) -> bool:
    """Whether there are so many seeds that no two groups share one."""
    return len(pool.seeds) >= 2 * pairs * size


def groups(pool: Record, pairs: int, size: int) -> Iterator[tuple[Record, Record]]:
    """Pairs of groups without a common seed. The seeds of different pairs differ, too, where there are enough."""
    if len(pool.seeds) < 2 * size:
        raise errors.BadInputError(
            f"{pool.stack} has {len(pool.seeds)} seeds; two groups need {2 * size}",
            next_step=f"vetted trajectories {pool.stack} --seeds {4 * size} --output pool.json",
        )
    draw = random.Random(0)
    for number in range(pairs):
        first = 2 * size * number
        apart = disjoint(pool, pairs, size)
        seeds = pool.seeds[first : first + 2 * size] if apart else draw.sample(pool.seeds, 2 * size)
        yield (
            pool.model_copy(update={"seeds": seeds[:size], "failed": {}}),
            pool.model_copy(update={"seeds": seeds[size:], "failed": {}}),
        )


def noticed(results: Sequence[Result], name: str) -> float:
    """The difference of a number that a comparison notices, the median over the pairs."""
    return short(statistics.median(result.noticed[name] for result in results))


def mean(pool: Record, name: str) -> float:
    """The mean of a number over all steps and seeds."""
    return short(statistics.fmean(value for seed in pool.seeds for value in seed.numbers[name]))


def short(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"trajectories: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
