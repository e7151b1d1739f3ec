"""Ranges and what is installed."""

from __future__ import annotations

import pytest

from doctor.base import versions


@pytest.mark.parametrize(
    ("range_", "installed", "holds"),
    [
        (">=5.0", "5.0.0.dev0", None),
        ("<5.0", "5.0.0.dev0", None),
        ("<5.0", "4.57.0", True),
        (">=3.3.0", ">=3.3.0", True),
        (">=5.0", ">=4.50", None),
        ("<0.16.0", ">=0.16", False),
        ("*", "anything", True),
        (">=1", "no version", None),
        ("==2.6.0", "2.6.0+cu124", True),
    ],
)
def test_a_range_holds_a_version_or_not_or_cannot_be_told(range_: str, installed: str, holds: bool | None) -> None:
    assert versions.within(range_, installed) is holds
