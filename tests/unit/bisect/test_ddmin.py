"""The smallest part that shows a fault: found, minimal by test, and in few questions."""

from __future__ import annotations

import itertools

import pytest

from builder.bisect import ddmin

ITEMS = tuple(range(21))


class Fault:
    """Shows when all of one of its groups are there; counts what it is asked."""

    def __init__(self, *groups: set[int]) -> None:
        self.groups = groups
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, part: tuple[int, ...]) -> bool:
        self.asked.append(part)
        return any(group <= set(part) for group in self.groups)


@pytest.mark.parametrize("culprit", ITEMS)
def test_one_culprit_of_21_is_found_in_at_most_seven_questions(culprit: int) -> None:
    fault = Fault({culprit})
    assert ddmin.smallest(ITEMS, fault) == (culprit,)
    assert len(fault.asked) <= 7  # the whole, five halvings and the culprit alone


@pytest.mark.parametrize("pair", list(itertools.combinations(ITEMS[::4], 2)))
def test_two_that_fail_only_together_are_both_found(pair: tuple[int, int]) -> None:
    fault = Fault(set(pair))
    assert ddmin.smallest(ITEMS, fault) == pair
    for one in pair:
        assert (one,) in fault.asked  # each alone was tried, and did not show it


def test_a_suspect_that_shows_it_is_the_only_question_besides_the_whole() -> None:
    fault = Fault({13})
    assert ddmin.smallest(ITEMS, fault, [(13,)]) == (13,)
    assert fault.asked == [ITEMS, (13,)]


def test_a_wrong_suspect_costs_one_question() -> None:
    wrong, without = Fault({13}), Fault({13})
    assert ddmin.smallest(ITEMS, wrong, [(4, 5)]) == ddmin.smallest(ITEMS, without) == (13,)
    assert len(wrong.asked) == len(without.asked) + 1


def test_of_two_faults_one_is_found_and_no_part_is_asked_twice() -> None:
    fault = Fault({3, 9}, {17})
    found = ddmin.smallest(ITEMS, fault)
    assert set(found) in ({3, 9}, {17})
    assert len(set(fault.asked)) == len(fault.asked)


def test_what_holds_the_fault_back_does_not_spoil_the_answer() -> None:
    """Not monotone: 2 and 8 show it, unless 5 is there without 6."""

    def shows(part: tuple[int, ...]) -> bool:
        return {2, 8} <= set(part) and not (5 in part and 6 not in part)

    assert ddmin.smallest(ITEMS, shows) == (2, 8)


def test_the_whole_must_show_it() -> None:
    with pytest.raises(AssertionError, match="must show the fault"):
        ddmin.smallest(ITEMS, Fault({99}))
