"""A step near an edge is left out only where rounding took the other side."""

from __future__ import annotations

import math

import pytest

from smoke.kit import measured


@pytest.mark.parametrize(
    ("loss", "gradient", "otherwise"),
    [
        (1e-6, 1e-5, False),
        (1e-6, 0.8, True),
        (0.01, 1e-6, True),
        (math.nan, 0.8, False),  # no rounding makes that: it is judged
    ],
)
def test_what_rounding_can_have_done(loss: float, gradient: float, otherwise: bool) -> None:
    assert measured._went_otherwise({"loss_error": {"step 1": loss}, "gradient_error": {"w": gradient}}) == otherwise
