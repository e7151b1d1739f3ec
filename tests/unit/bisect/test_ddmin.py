"""The smallest part that shows a fault: found, minimal by test, and in few questions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from random import Random

import pytest

from builder.bisect import ddmin

ITEMS = tuple(range(21))
PICIRE = 7227  # questions that picire 21.8 took for the same random problems


class Fault:
    """Shows where all of a group are there, and no first of a pair without the second; records the questions."""

    def __init__(self, *groups: set[int], pairs: Sequence[Sequence[int]] = ()) -> None:
        self.groups, self.pairs = groups, pairs
        self.questions: list[tuple[int, ...]] = []

    def __call__(self, part: tuple[int, ...]) -> bool:
        self.questions.append(part)
        hidden = any(first in part and second not in part for first, second in self.pairs)
        return not hidden and any(group <= set(part) for group in self.groups)


@pytest.mark.parametrize("culprit", ITEMS)
def test_one_culprit_of_21_is_found_in_at_most_seven_questions(culprit: int) -> None:
    fault = Fault({culprit})
    assert ddmin.smallest(ITEMS, fault) == (culprit,)
    assert len(fault.questions) <= 7  # the whole, five halvings and the culprit alone


@pytest.mark.parametrize("pair", list(itertools.combinations(ITEMS[::4], 2)))
def test_two_that_fail_only_together_are_both_found(pair: tuple[int, int]) -> None:
    fault = Fault(set(pair))
    assert ddmin.smallest(ITEMS, fault) == pair
    for item in pair:
        assert (item,) in fault.questions  # each alone was tried, and did not show it


def test_a_suspect_that_shows_it_is_the_only_question_besides_the_whole() -> None:
    fault = Fault({13})
    assert ddmin.smallest(ITEMS, fault, [(13,)]) == (13,)
    assert fault.questions == [ITEMS, (13,)]


def test_a_wrong_suspect_costs_one_question() -> None:
    wrong, without = Fault({13}), Fault({13})
    assert ddmin.smallest(ITEMS, wrong, [(4, 5)]) == ddmin.smallest(ITEMS, without) == (13,)
    assert len(wrong.questions) == len(without.questions) + 1


def test_of_two_faults_one_is_found_and_no_part_is_asked_twice() -> None:
    fault = Fault({3, 9}, {17})
    result = ddmin.smallest(ITEMS, fault)
    assert set(result) in ({3, 9}, {17})
    assert len(set(fault.questions)) == len(fault.questions)


def test_what_holds_the_fault_back_does_not_spoil_the_answer() -> None:
    """Not monotone: 2 and 8 show it, unless 5 is there without 6."""
    assert ddmin.smallest(ITEMS, Fault({2, 8}, pairs=[(5, 6)])) == (2, 8)


def test_the_whole_must_show_it() -> None:
    with pytest.raises(AssertionError, match="must show the fault"):
        ddmin.smallest(ITEMS, Fault({99}))


def test_the_answer_is_minimal_and_takes_no_more_questions_than_picire_took() -> None:
    """Random problems, some of them not monotone."""
    random = Random(1)
    questions = 0
    for _ in range(300):
        items = tuple(range(random.randint(6, 60)))
        groups = [set(random.sample(items, random.randint(1, 4))) for _ in range(random.randint(1, 3))]
        free = [item for item in items if not any(item in group for group in groups)]
        pairs = [random.sample(free, 2) for _ in range(random.randint(0, 6)) if len(free) > 1]
        fault = Fault(*groups, pairs=pairs)
        part = ddmin.smallest(items, fault)
        questions += len(fault.questions)
        assert len(set(fault.questions)) == len(fault.questions)
        assert fault(part)
        assert not any(fault(tuple(item for item in part if item != left_out)) for left_out in part)
    assert questions <= PICIRE
