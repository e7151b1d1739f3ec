"""The smallest part of a whole that still shows a fault.

picire's delta debugging does the proof: no part of its answer can be left out. Before it, what is suspected is asked
first, and then binary searches, which need one question per doubling for every part that is needed, where delta
debugging alone may need two.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)


def smallest(
    items: Sequence[T], shows: Callable[[tuple[T, ...]], bool], suspects: Iterable[Sequence[T]] = ()
) -> tuple[T, ...]:
    """A part of `items` that shows the fault, while it does not with any one of its own items left out.

    All `items` together must show it. `shows` is asked once for each part, in the order of `items`; the most suspected
    of them should stand first, and `suspects`, parts of them, are tried before anything else.
    """
    answers: dict[frozenset[T], bool] = {}

    def ask(part: Iterable[T]) -> bool:
        wanted = frozenset(part)
        if wanted not in answers:
            answers[wanted] = shows(tuple(item for item in items if item in wanted))
        return answers[wanted]

    assert ask(items), "all of them together must show the fault"
    start = next((part for part in suspects if part and ask(part)), items)
    narrowed = set(_narrow(start, ask))
    return _minimal([item for item in items if item in narrowed], ask)


def _narrow(items: Sequence[T], shows: Callable[[Iterable[T]], bool]) -> list[T]:
    """A part that shows it: the last of the shortest beginning that does is needed; with it, the same again."""
    needed: list[T] = []
    rest = list(items)
    while rest and not (needed and shows(needed)):
        without, with_ = 0, len(rest)
        while with_ - without > 1:
            middle = (without + with_) // 2
            if shows([*needed, *rest[:middle]]):
                with_ = middle
            else:
                without = middle
        needed.append(rest[with_ - 1])
        rest = rest[: with_ - 1]
    return needed


def _minimal(items: Sequence[T], shows: Callable[[Iterable[T]], bool]) -> tuple[T, ...]:
    with warnings.catch_warnings():
        # picire's command line, which is not used here, imports what setuptools no longer wants to be used. And it is
        # imported only now, because that takes as long as all else that a command imports.
        warnings.simplefilter("ignore")
        import picire

    def test(part: Sequence[T], _identifier: Any) -> Any:
        return picire.Outcome.FAIL if shows(part) else picire.Outcome.PASS

    return tuple(picire.DD(test)(list(items)))
