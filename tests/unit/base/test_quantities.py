"""Sizes and bounds as people read them."""

from __future__ import annotations

import pytest

from builder.base import quantities


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0.0 kB"),
        (1234, "1.2 kB"),
        (499_949, "499.9 kB"),
        (500_000, "500.0 kB"),
        (500_001, "1 MB"),
        (1_500_001, "2 MB"),
        (3e9, "3000 MB"),
    ],
)
def test_a_size_is_in_megabytes_or_kilobytes(count: float, words: str) -> None:
    assert quantities.size(count) == words


def test_a_change_in_size_has_a_sign() -> None:
    assert [quantities.size_change(count) for count in (1.44e6, -2e6, 0)] == ["+1.4 MB", "-2.0 MB", "+0.0 MB"]


def test_bounds_have_the_signs_of_mathematics() -> None:
    assert quantities.bounds({"at_least": 1, "at_most": 2}, str) == "≥ 1 ≤ 2"
    assert quantities.bounds({"equals": 0.5}, "{:.3f}".format) == "= 0.500"
    assert quantities.bounds(None, str) == ""
