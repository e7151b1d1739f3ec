"""Which change fixed what: the index of changes (doctor/know/changes/), searched by the identifiers of an error.

scripts/change_index.py writes it from public histories. The search is SQLite's (FTS5), in memory; a Python without it
finds nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from doctor.base import versions
from doctor.know import data

try:
    import sqlite3
except ImportError:  # some builds of Python have none
    sqlite3 = None  # type: ignore[assignment]

MOST = 20  # changes of a package that are looked at
RARE = 4  # changes of a package that a telling word is in, at most
LONG = 10  # letters of a word that can tell
ENOUGH = 2  # such words that must agree, where the error does not quote one
WORD = re.compile(r"[A-Za-z0-9_]+")


class Change(NamedTuple):
    """A change that calls itself a fix: `after` is the last release without it, `release` one that has it."""

    package: str
    repository: str  # huggingface/trl
    number: int
    issues: tuple[int, ...]  # those that it closes
    after: str
    release: str
    words: frozenset[str]  # in small letters


class Match(NamedTuple):
    """A change, the words that it has in common with an error, and how much they tell."""

    change: Change
    words: list[str]
    score: float


@cache
def packages() -> tuple[str, ...]:
    """The packages that there is an index of."""
    return tuple(data.read_index("changes"))


@cache
def of_package(package: str) -> tuple[Change, ...]:
    """The changes of a package."""
    entry = data.read_packed("changes", package)
    return tuple(
        Change(package, entry["repository"], number, tuple(issues), after, release, words_of(words))
        for number, issues, after, release, words in entry["changes"]
    )


def words_of(text: str) -> frozenset[str]:
    """The words of a text in small letters: identifiers are whole, and dotted names are their parts."""
    return frozenset(word.lower() for word in WORD.findall(text))


def best(
    package: str, version: str | None, quoted: Iterable[str], message: Iterable[str], places: Iterable[str]
) -> Match | None:
    """The change whose words agree best with an error; None where too few do.

    `quoted` and `message`: the identifiers that the error says, in quotes or not; `places`: the functions that it
    passed through. A change that the installed release has, or may have, is none.
    """
    named = {word.lower() for word in quoted}
    told, passed = {word.lower() for word in message} | named, {word.lower() for word in places}
    candidates = _search(of_package(package), told | passed)
    count = _counts(package)
    matches = []
    for change in candidates:
        if version is not None and versions.within(f"<={change.after}", version) is not True:
            continue
        rare = [word for word in change.words & (told | passed) if count[word] <= RARE]
        telling = [word for word in rare if word in told and len(word) >= LONG]
        if telling and (len(rare) >= ENOUGH or telling[0] in named):
            score = math.fsum(math.log(len(of_package(package)) / count[word]) for word in rare)
            matches.append(Match(change, sorted(rare), score))
    return max(matches, key=lambda match: (match.score, -match.change.number), default=None)


@cache
def _counts(package: str) -> Counter[str]:
    """In how many changes of a package each word is."""
    return Counter(word for change in of_package(package) for word in change.words)


def _search(changes: tuple[Change, ...], words: set[str]) -> list[Change]:
    """The changes that FTS5 ranks first for these words."""
    if sqlite3 is None or not words:
        return []
    base = sqlite3.connect(":memory:")
    try:
        base.execute("CREATE VIRTUAL TABLE fixes USING fts5(words, tokenize = \"unicode61 tokenchars '_'\")")
        rows = ((number, " ".join(change.words)) for number, change in enumerate(changes))
        base.executemany("INSERT INTO fixes (rowid, words) VALUES (?, ?)", rows)
        query = " OR ".join(f'"{word}"' for word in sorted(words) if word.isascii())
        answer = base.execute("SELECT rowid FROM fixes WHERE fixes MATCH ? ORDER BY rank LIMIT ?", (query, MOST))
        return [changes[number] for (number,) in answer]
    except sqlite3.Error:  # a SQLite without FTS5
        return []
    finally:
        base.close()
