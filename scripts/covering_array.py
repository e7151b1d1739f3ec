"""Writes the rows of the covering arrays: `python -m scripts.covering_array`

Every pair of levels of two factors (smoke/kit/levels.py) is in some row, except those that are declared impossible.
The rows are data that the suite reads, because an image has no covertable. The same seed gives the same rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

from covertable import make, sorters

from smoke.kit import levels as kit

FILE = Path(__file__).parents[1] / "smoke" / "kit" / "array.py"
# Of the seeds 0 to 59 one with few rows, in which what shows only off policy is off policy somewhere, for each array.
SEEDS = {"FACTORS": 51, "RANK_FACTORS": 7, "SAMPLER_FACTORS": 2}
Levels = Mapping[str, Sequence[str]]
Pair = tuple[tuple[str, str], tuple[str, str]]


def pairs(levels: Levels) -> Iterator[Pair]:
    """Every pair of levels of two factors."""
    for first, second in combinations(levels, 2):
        for level in levels[first]:
            for other in levels[second]:
                yield (first, level), (second, other)


def impossible(levels: Levels) -> set[frozenset[tuple[str, str]]]:
    """The declared pairs whose levels these factors have."""
    present = {(name, level) for name in levels for level in levels[name]}
    return {frozenset((a, b)) for a, b, _ in kit.IMPOSSIBLE if a in present and b in present}


def rows(levels: Levels, seed: int) -> list[dict[str, str]]:
    """The rows of an array, with the factors in their order: those of the usual levels, then those of rare ones."""
    rare = {name: level for name, level in kit.RARE.items() if name in levels}
    usual = {name: [level for level in levels[name] if level != rare.get(name)] for name in levels}
    array = _made(usual, seed, strength=2)
    for name, level in rare.items():
        # With one level of it, each level of the others in some row is each pair with it.
        array += _made(_beside(usual, name, level), seed, strength=1)
    return [{name: row[name] for name in levels} for row in array]


def _made(levels: Levels, seed: int, *, strength: int) -> list[dict[str, str]]:
    constraints = [
        {
            "operator": "or",
            "conditions": [{"operator": "ne", "left": name, "value": level} for name, level in sorted(pair)],
        }
        for pair in sorted(impossible(levels), key=sorted)
    ]
    made: list[dict[str, str]] = make(
        dict(levels), sorter=sorters.hash, salt=str(seed), constraints=constraints, strength=strength
    )
    return made


def _beside(usual: Levels, rare: str, level: str) -> dict[str, list[str]]:
    """The rare level alone, and of the other factors the levels that it can be with."""
    never = impossible({**usual, rare: [level]})
    others = {
        name: [other for other in usual[name] if frozenset(((rare, level), (name, other))) not in never]
        for name in usual
    }
    return {**others, rare: [level]}


def text() -> str:
    """The content of the file."""
    parts = ['"""The rows of the covering arrays, written by `python -m scripts.covering_array` from levels.py."""\n']
    for name, seed in SEEDS.items():
        levels: Levels = getattr(kit, name)
        lines = [
            "    (" + ", ".join(str(levels[factor].index(row[factor])) for factor in levels) + "),"
            for row in rows(levels, seed)
        ]
        parts.append(f"# One row a line: the number of the level of every factor of {name}.")
        variable = name.replace("FACTORS", "ROWS")
        parts.append(f"{variable}: tuple[tuple[int, ...], ...] = (\n" + "\n".join(lines) + "\n)\n")
    return "\n".join(parts)


def main() -> int:
    """Write the file."""
    content = text()
    FILE.write_text(content)
    print(f"{FILE.name}: {content.count('),')} rows", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
