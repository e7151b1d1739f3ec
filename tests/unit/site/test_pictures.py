"""The small pictures: a dot within the zone is a number within its bound, whatever the numbers are."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.certify.catalogue import Bound, Limit
from builder.site import pictures

numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
bounds = st.fixed_dictionaries({}, optional={"at_most": numbers, "at_least": numbers})


@given(value=numbers, bound=bounds | st.fixed_dictionaries({"equals": numbers}))
def test_the_dot_is_in_the_picture_and_inside_exactly_if_the_bound_holds(value: float, bound: Limit) -> None:
    picture = pictures.bullet(value, bound)
    if not bound:
        assert picture is None
        return
    assert picture is not None
    assert 0 <= picture.dot <= pictures.WIDTH
    assert 0 <= picture.left <= pictures.WIDTH and 0 <= picture.right <= pictures.WIDTH
    scale = max(map(abs, (value, *bound.values()))) or 1.0
    if all(value == limit or abs(value - limit) / scale > 1e-9 for limit in bound.values()):
        assert picture.inside == Bound(name="n", unit="", bound=bound, why="", headline=True).holds(value)


def test_a_zone_is_where_the_bound_is() -> None:
    picture = pictures.bullet(1, {"at_least": 2, "at_most": 4})
    assert picture is not None
    assert picture.dot < picture.left < picture.right < pictures.WIDTH
    assert not picture.inside


@pytest.mark.parametrize(
    ("value", "bound"),
    [(None, {"at_most": 1}), ("1", {"at_most": 1}), (True, {"at_most": 1}), (1, {"at_most": "x"}), (1, None)],
)  # fmt: skip
def test_what_is_no_number_has_no_picture(value: object, bound: dict[str, object] | None) -> None:
    assert pictures.bullet(value, bound) is None


def test_the_largest_numbers_have_a_picture() -> None:
    assert pictures.bullet(sys.float_info.max, {"at_least": -sys.float_info.max}) is not None


def test_a_line_goes_from_left_to_right_and_up_where_values_grow() -> None:
    assert pictures.line([1.0, 2.0]) == "0,11.0 100,1.0"


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0], [-sys.float_info.max, sys.float_info.max]])
def test_what_did_not_move_has_no_line(values: list[float]) -> None:
    assert pictures.line(values) == ""


@pytest.mark.parametrize(
    ("value", "bound", "share"),
    [
        (1.0, {"at_most": 4.0}, 0.25), (8.0, {"at_least": 2.0}, 0.25), (3.0, {"equals": 3.0}, 0.0),
        (3.0, {"equals": 2.0}, 2.0), (-1.0, {"at_most": 4.0}, 0.0), (1.0, {"at_most": 0.0}, None), (1.0, None, None),
        (3.0, {"at_least": 1.5, "at_most": 4.0}, 0.75), (True, {"at_most": True}, None),
    ],
)  # fmt: skip
def test_how_near_a_number_is_to_its_bound(value: float, bound: Limit | None, share: float | None) -> None:
    assert pictures.nearness(value, bound) == share
