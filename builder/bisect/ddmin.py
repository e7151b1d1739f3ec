"""The smallest part of a whole that still shows a fault.

Suspects are tried first, then binary searches: for each item that is needed, one question per doubling. Delta debugging
(Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002) proves the answer: without any one of
its items, the fault does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def smallest(
    items: Sequence[T], shows: Callable[[tuple[T, ...]], bool], suspects: Iterable[Sequence[T]] = ()
) -> tuple[T, ...]:
    """A part of `items` that shows the fault, and does not without any one of its items.

    All `items` together must show it. `shows` is asked once for each part, in the order of `items`; the most suspected
    of them should come first, and `suspects`, parts of them, are tried before anything else.
    """
    answers: dict[frozenset[T], bool] = {}

    def ask(part: Iterable[T]) -> bool:
        subset = frozenset(part)
        if subset not in answers:
            answers[subset] = shows(tuple(item for item in items if item in subset))
        return answers[subset]

    assert ask(items), "all of them together must show the fault"
    start = next((part for part in suspects if part and ask(part)), items)
    narrowed = set(_narrow(start, ask))
    return tuple(_ddmin([item for item in items if item in narrowed], ask))


def _narrow(items: Sequence[T], shows: Callable[[Iterable[T]], bool]) -> list[T]:
    """A part that shows it: the last item of the shortest beginning that does is needed; with it, the same again."""
    needed: list[T] = []
    rest = list(items)
    while rest and not (needed and shows(needed)):
        low, high = 0, len(rest)
        while high - low > 1:
            middle = (low + high) // 2
            if shows([*needed, *rest[:middle]]):
                high = middle
            else:
                low = middle
        needed.append(rest[high - 1])
        rest = rest[: high - 1]
    return needed


def _ddmin(items: list[T], shows: Callable[[Iterable[T]], bool]) -> list[T]:
    """Leave out one chunk after the other; where all are needed, cut them in two, until each is one item.

    Chunks on their own, which the paper tries as well, are not tried: after the binary searches they rarely show it.
    """
    chunks, first = _chunks(items, 2), 0
    while len(items) > 1:
        for number in (*range(first, len(chunks)), *range(first)):
            others = [*chunks[:number], *chunks[number + 1 :]]
            if shows(chain.from_iterable(others)):
                items = list(chain.from_iterable(others))
                # The chunk behind the one that was left out is next.
                chunks, first = others if len(others) > 1 else _chunks(items, 2), number
                break
        else:
            if len(chunks) == len(items):
                break
            chunks, first = _chunks(items, 2 * len(chunks)), 0
    return items


def _chunks(items: list[T], count: int) -> list[list[T]]:
    """The items in this many chunks, or one for each item."""
    count = min(count, len(items))
    return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]
